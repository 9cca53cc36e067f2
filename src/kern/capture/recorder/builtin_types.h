/* Stands in for the runtime's header, which cupti_callbacks.h includes and does not use: it takes nvcc's headers. */
