// <cublas_v2.h>: kernels need of it the headers that it includes, and its types by name.
#pragma once
#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef struct cublasContext* cublasHandle_t;
typedef struct cublasLtContext* cublasLtHandle_t;
typedef int cublasStatus_t;
typedef int cublasComputeType_t;
typedef int cublasOperation_t;
