/* Stands in for the runtime's header, which cupti_callbacks.h includes and does not use: it needs the headers of nvcc. */
