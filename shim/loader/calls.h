/* Made from shim/loader.table by shim/gen; not to be edited. */

EXPORT cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id a0, cl_platform_info a1, size_t a2, void *a3, size_t *a4) {
  return a0 ? of(a0)->clGetPlatformInfo(a0, a1, a2, a3, a4) : CL_INVALID_PLATFORM;
}

EXPORT cl_int CL_API_CALL clGetDeviceInfo(cl_device_id a0, cl_device_info a1, size_t a2, void *a3, size_t *a4) {
  return a0 ? of(a0)->clGetDeviceInfo(a0, a1, a2, a3, a4) : CL_INVALID_DEVICE;
}

EXPORT cl_int CL_API_CALL clRetainContext(cl_context a0) {
  return a0 ? of(a0)->clRetainContext(a0) : CL_INVALID_CONTEXT;
}

EXPORT cl_int CL_API_CALL clReleaseContext(cl_context a0) {
  return a0 ? of(a0)->clReleaseContext(a0) : CL_INVALID_CONTEXT;
}

EXPORT cl_int CL_API_CALL clGetContextInfo(cl_context a0, cl_context_info a1, size_t a2, void *a3, size_t *a4) {
  return a0 ? of(a0)->clGetContextInfo(a0, a1, a2, a3, a4) : CL_INVALID_CONTEXT;
}

EXPORT cl_command_queue CL_API_CALL clCreateCommandQueue(cl_context a0, cl_device_id a1, cl_command_queue_properties a2, cl_int *a3) {
  if (a0) return of(a0)->clCreateCommandQueue(a0, a1, a2, a3);
  if (a3) *a3 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clRetainCommandQueue(cl_command_queue a0) {
  return a0 ? of(a0)->clRetainCommandQueue(a0) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clReleaseCommandQueue(cl_command_queue a0) {
  return a0 ? of(a0)->clReleaseCommandQueue(a0) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clGetCommandQueueInfo(cl_command_queue a0, cl_command_queue_info a1, size_t a2, void *a3, size_t *a4) {
  return a0 ? of(a0)->clGetCommandQueueInfo(a0, a1, a2, a3, a4) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clSetCommandQueueProperty(cl_command_queue a0, cl_command_queue_properties a1, cl_bool a2, cl_command_queue_properties *a3) {
  return a0 ? of(a0)->clSetCommandQueueProperty(a0, a1, a2, a3) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_mem CL_API_CALL clCreateBuffer(cl_context a0, cl_mem_flags a1, size_t a2, void *a3, cl_int *a4) {
  if (a0) return of(a0)->clCreateBuffer(a0, a1, a2, a3, a4);
  if (a4) *a4 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_mem CL_API_CALL clCreateImage2D(cl_context a0, cl_mem_flags a1, const cl_image_format *a2, size_t a3, size_t a4, size_t a5, void *a6, cl_int *a7) {
  if (a0) return of(a0)->clCreateImage2D(a0, a1, a2, a3, a4, a5, a6, a7);
  if (a7) *a7 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_mem CL_API_CALL clCreateImage3D(cl_context a0, cl_mem_flags a1, const cl_image_format *a2, size_t a3, size_t a4, size_t a5, size_t a6, size_t a7, void *a8, cl_int *a9) {
  if (a0) return of(a0)->clCreateImage3D(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9);
  if (a9) *a9 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clRetainMemObject(cl_mem a0) {
  return a0 ? of(a0)->clRetainMemObject(a0) : CL_INVALID_MEM_OBJECT;
}

EXPORT cl_int CL_API_CALL clReleaseMemObject(cl_mem a0) {
  return a0 ? of(a0)->clReleaseMemObject(a0) : CL_INVALID_MEM_OBJECT;
}

EXPORT cl_int CL_API_CALL clGetSupportedImageFormats(cl_context a0, cl_mem_flags a1, cl_mem_object_type a2, cl_uint a3, cl_image_format *a4, cl_uint *a5) {
  return a0 ? of(a0)->clGetSupportedImageFormats(a0, a1, a2, a3, a4, a5) : CL_INVALID_CONTEXT;
}

EXPORT cl_int CL_API_CALL clGetMemObjectInfo(cl_mem a0, cl_mem_info a1, size_t a2, void *a3, size_t *a4) {
  return a0 ? of(a0)->clGetMemObjectInfo(a0, a1, a2, a3, a4) : CL_INVALID_MEM_OBJECT;
}

EXPORT cl_int CL_API_CALL clGetImageInfo(cl_mem a0, cl_image_info a1, size_t a2, void *a3, size_t *a4) {
  return a0 ? of(a0)->clGetImageInfo(a0, a1, a2, a3, a4) : CL_INVALID_MEM_OBJECT;
}

EXPORT cl_sampler CL_API_CALL clCreateSampler(cl_context a0, cl_bool a1, cl_addressing_mode a2, cl_filter_mode a3, cl_int *a4) {
  if (a0) return of(a0)->clCreateSampler(a0, a1, a2, a3, a4);
  if (a4) *a4 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clRetainSampler(cl_sampler a0) {
  return a0 ? of(a0)->clRetainSampler(a0) : CL_INVALID_SAMPLER;
}

EXPORT cl_int CL_API_CALL clReleaseSampler(cl_sampler a0) {
  return a0 ? of(a0)->clReleaseSampler(a0) : CL_INVALID_SAMPLER;
}

EXPORT cl_int CL_API_CALL clGetSamplerInfo(cl_sampler a0, cl_sampler_info a1, size_t a2, void *a3, size_t *a4) {
  return a0 ? of(a0)->clGetSamplerInfo(a0, a1, a2, a3, a4) : CL_INVALID_SAMPLER;
}

EXPORT cl_program CL_API_CALL clCreateProgramWithSource(cl_context a0, cl_uint a1, const char **a2, const size_t *a3, cl_int *a4) {
  if (a0) return of(a0)->clCreateProgramWithSource(a0, a1, a2, a3, a4);
  if (a4) *a4 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_program CL_API_CALL clCreateProgramWithBinary(cl_context a0, cl_uint a1, const cl_device_id *a2, const size_t *a3, const unsigned char **a4, cl_int *a5, cl_int *a6) {
  if (a0) return of(a0)->clCreateProgramWithBinary(a0, a1, a2, a3, a4, a5, a6);
  if (a6) *a6 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clRetainProgram(cl_program a0) {
  return a0 ? of(a0)->clRetainProgram(a0) : CL_INVALID_PROGRAM;
}

EXPORT cl_int CL_API_CALL clReleaseProgram(cl_program a0) {
  return a0 ? of(a0)->clReleaseProgram(a0) : CL_INVALID_PROGRAM;
}

EXPORT cl_int CL_API_CALL clBuildProgram(cl_program a0, cl_uint a1, const cl_device_id *a2, const char *a3, void (CL_CALLBACK *a4)(cl_program, void *), void *a5) {
  return a0 ? of(a0)->clBuildProgram(a0, a1, a2, a3, a4, a5) : CL_INVALID_PROGRAM;
}

EXPORT cl_int CL_API_CALL clGetProgramInfo(cl_program a0, cl_program_info a1, size_t a2, void *a3, size_t *a4) {
  return a0 ? of(a0)->clGetProgramInfo(a0, a1, a2, a3, a4) : CL_INVALID_PROGRAM;
}

EXPORT cl_int CL_API_CALL clGetProgramBuildInfo(cl_program a0, cl_device_id a1, cl_program_build_info a2, size_t a3, void *a4, size_t *a5) {
  return a0 ? of(a0)->clGetProgramBuildInfo(a0, a1, a2, a3, a4, a5) : CL_INVALID_PROGRAM;
}

EXPORT cl_kernel CL_API_CALL clCreateKernel(cl_program a0, const char *a1, cl_int *a2) {
  if (a0) return of(a0)->clCreateKernel(a0, a1, a2);
  if (a2) *a2 = CL_INVALID_PROGRAM;
  return NULL;
}

EXPORT cl_int CL_API_CALL clCreateKernelsInProgram(cl_program a0, cl_uint a1, cl_kernel *a2, cl_uint *a3) {
  return a0 ? of(a0)->clCreateKernelsInProgram(a0, a1, a2, a3) : CL_INVALID_PROGRAM;
}

EXPORT cl_int CL_API_CALL clRetainKernel(cl_kernel a0) {
  return a0 ? of(a0)->clRetainKernel(a0) : CL_INVALID_KERNEL;
}

EXPORT cl_int CL_API_CALL clReleaseKernel(cl_kernel a0) {
  return a0 ? of(a0)->clReleaseKernel(a0) : CL_INVALID_KERNEL;
}

EXPORT cl_int CL_API_CALL clSetKernelArg(cl_kernel a0, cl_uint a1, size_t a2, const void *a3) {
  return a0 ? of(a0)->clSetKernelArg(a0, a1, a2, a3) : CL_INVALID_KERNEL;
}

EXPORT cl_int CL_API_CALL clGetKernelInfo(cl_kernel a0, cl_kernel_info a1, size_t a2, void *a3, size_t *a4) {
  return a0 ? of(a0)->clGetKernelInfo(a0, a1, a2, a3, a4) : CL_INVALID_KERNEL;
}

EXPORT cl_int CL_API_CALL clGetKernelWorkGroupInfo(cl_kernel a0, cl_device_id a1, cl_kernel_work_group_info a2, size_t a3, void *a4, size_t *a5) {
  return a0 ? of(a0)->clGetKernelWorkGroupInfo(a0, a1, a2, a3, a4, a5) : CL_INVALID_KERNEL;
}

EXPORT cl_int CL_API_CALL clGetEventInfo(cl_event a0, cl_event_info a1, size_t a2, void *a3, size_t *a4) {
  return a0 ? of(a0)->clGetEventInfo(a0, a1, a2, a3, a4) : CL_INVALID_EVENT;
}

EXPORT cl_int CL_API_CALL clRetainEvent(cl_event a0) {
  return a0 ? of(a0)->clRetainEvent(a0) : CL_INVALID_EVENT;
}

EXPORT cl_int CL_API_CALL clReleaseEvent(cl_event a0) {
  return a0 ? of(a0)->clReleaseEvent(a0) : CL_INVALID_EVENT;
}

EXPORT cl_int CL_API_CALL clGetEventProfilingInfo(cl_event a0, cl_profiling_info a1, size_t a2, void *a3, size_t *a4) {
  return a0 ? of(a0)->clGetEventProfilingInfo(a0, a1, a2, a3, a4) : CL_INVALID_EVENT;
}

EXPORT cl_int CL_API_CALL clFlush(cl_command_queue a0) {
  return a0 ? of(a0)->clFlush(a0) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clFinish(cl_command_queue a0) {
  return a0 ? of(a0)->clFinish(a0) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue a0, cl_mem a1, cl_bool a2, size_t a3, size_t a4, void *a5, cl_uint a6, const cl_event *a7, cl_event *a8) {
  return a0 ? of(a0)->clEnqueueReadBuffer(a0, a1, a2, a3, a4, a5, a6, a7, a8) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueWriteBuffer(cl_command_queue a0, cl_mem a1, cl_bool a2, size_t a3, size_t a4, const void *a5, cl_uint a6, const cl_event *a7, cl_event *a8) {
  return a0 ? of(a0)->clEnqueueWriteBuffer(a0, a1, a2, a3, a4, a5, a6, a7, a8) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueCopyBuffer(cl_command_queue a0, cl_mem a1, cl_mem a2, size_t a3, size_t a4, size_t a5, cl_uint a6, const cl_event *a7, cl_event *a8) {
  return a0 ? of(a0)->clEnqueueCopyBuffer(a0, a1, a2, a3, a4, a5, a6, a7, a8) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueReadImage(cl_command_queue a0, cl_mem a1, cl_bool a2, const size_t *a3, const size_t *a4, size_t a5, size_t a6, void *a7, cl_uint a8, const cl_event *a9, cl_event *a10) {
  return a0 ? of(a0)->clEnqueueReadImage(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueWriteImage(cl_command_queue a0, cl_mem a1, cl_bool a2, const size_t *a3, const size_t *a4, size_t a5, size_t a6, const void *a7, cl_uint a8, const cl_event *a9, cl_event *a10) {
  return a0 ? of(a0)->clEnqueueWriteImage(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueCopyImage(cl_command_queue a0, cl_mem a1, cl_mem a2, const size_t *a3, const size_t *a4, const size_t *a5, cl_uint a6, const cl_event *a7, cl_event *a8) {
  return a0 ? of(a0)->clEnqueueCopyImage(a0, a1, a2, a3, a4, a5, a6, a7, a8) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueCopyImageToBuffer(cl_command_queue a0, cl_mem a1, cl_mem a2, const size_t *a3, const size_t *a4, size_t a5, cl_uint a6, const cl_event *a7, cl_event *a8) {
  return a0 ? of(a0)->clEnqueueCopyImageToBuffer(a0, a1, a2, a3, a4, a5, a6, a7, a8) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueCopyBufferToImage(cl_command_queue a0, cl_mem a1, cl_mem a2, size_t a3, const size_t *a4, const size_t *a5, cl_uint a6, const cl_event *a7, cl_event *a8) {
  return a0 ? of(a0)->clEnqueueCopyBufferToImage(a0, a1, a2, a3, a4, a5, a6, a7, a8) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT void *CL_API_CALL clEnqueueMapBuffer(cl_command_queue a0, cl_mem a1, cl_bool a2, cl_map_flags a3, size_t a4, size_t a5, cl_uint a6, const cl_event *a7, cl_event *a8, cl_int *a9) {
  if (a0) return of(a0)->clEnqueueMapBuffer(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9);
  if (a9) *a9 = CL_INVALID_COMMAND_QUEUE;
  return NULL;
}

EXPORT void *CL_API_CALL clEnqueueMapImage(cl_command_queue a0, cl_mem a1, cl_bool a2, cl_map_flags a3, const size_t *a4, const size_t *a5, size_t *a6, size_t *a7, cl_uint a8, const cl_event *a9, cl_event *a10, cl_int *a11) {
  if (a0) return of(a0)->clEnqueueMapImage(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11);
  if (a11) *a11 = CL_INVALID_COMMAND_QUEUE;
  return NULL;
}

EXPORT cl_int CL_API_CALL clEnqueueUnmapMemObject(cl_command_queue a0, cl_mem a1, void *a2, cl_uint a3, const cl_event *a4, cl_event *a5) {
  return a0 ? of(a0)->clEnqueueUnmapMemObject(a0, a1, a2, a3, a4, a5) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue a0, cl_kernel a1, cl_uint a2, const size_t *a3, const size_t *a4, const size_t *a5, cl_uint a6, const cl_event *a7, cl_event *a8) {
  return a0 ? of(a0)->clEnqueueNDRangeKernel(a0, a1, a2, a3, a4, a5, a6, a7, a8) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueTask(cl_command_queue a0, cl_kernel a1, cl_uint a2, const cl_event *a3, cl_event *a4) {
  return a0 ? of(a0)->clEnqueueTask(a0, a1, a2, a3, a4) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueNativeKernel(cl_command_queue a0, void (CL_CALLBACK *a1)(void *), void *a2, size_t a3, cl_uint a4, const cl_mem *a5, const void **a6, cl_uint a7, const cl_event *a8, cl_event *a9) {
  return a0 ? of(a0)->clEnqueueNativeKernel(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueMarker(cl_command_queue a0, cl_event *a1) {
  return a0 ? of(a0)->clEnqueueMarker(a0, a1) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueWaitForEvents(cl_command_queue a0, cl_uint a1, const cl_event *a2) {
  return a0 ? of(a0)->clEnqueueWaitForEvents(a0, a1, a2) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueBarrier(cl_command_queue a0) {
  return a0 ? of(a0)->clEnqueueBarrier(a0) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_mem CL_API_CALL clCreateFromGLBuffer(cl_context a0, cl_mem_flags a1, cl_GLuint a2, cl_int *a3) {
  if (a0) return of(a0)->clCreateFromGLBuffer(a0, a1, a2, a3);
  if (a3) *a3 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_mem CL_API_CALL clCreateFromGLTexture2D(cl_context a0, cl_mem_flags a1, cl_GLenum a2, cl_GLint a3, cl_GLuint a4, cl_int *a5) {
  if (a0) return of(a0)->clCreateFromGLTexture2D(a0, a1, a2, a3, a4, a5);
  if (a5) *a5 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_mem CL_API_CALL clCreateFromGLTexture3D(cl_context a0, cl_mem_flags a1, cl_GLenum a2, cl_GLint a3, cl_GLuint a4, cl_int *a5) {
  if (a0) return of(a0)->clCreateFromGLTexture3D(a0, a1, a2, a3, a4, a5);
  if (a5) *a5 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_mem CL_API_CALL clCreateFromGLRenderbuffer(cl_context a0, cl_mem_flags a1, cl_GLuint a2, cl_int *a3) {
  if (a0) return of(a0)->clCreateFromGLRenderbuffer(a0, a1, a2, a3);
  if (a3) *a3 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clGetGLObjectInfo(cl_mem a0, cl_gl_object_type *a1, cl_GLuint *a2) {
  return a0 ? of(a0)->clGetGLObjectInfo(a0, a1, a2) : CL_INVALID_MEM_OBJECT;
}

EXPORT cl_int CL_API_CALL clGetGLTextureInfo(cl_mem a0, cl_gl_texture_info a1, size_t a2, void *a3, size_t *a4) {
  return a0 ? of(a0)->clGetGLTextureInfo(a0, a1, a2, a3, a4) : CL_INVALID_MEM_OBJECT;
}

EXPORT cl_int CL_API_CALL clEnqueueAcquireGLObjects(cl_command_queue a0, cl_uint a1, const cl_mem *a2, cl_uint a3, const cl_event *a4, cl_event *a5) {
  return a0 ? of(a0)->clEnqueueAcquireGLObjects(a0, a1, a2, a3, a4, a5) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueReleaseGLObjects(cl_command_queue a0, cl_uint a1, const cl_mem *a2, cl_uint a3, const cl_event *a4, cl_event *a5) {
  return a0 ? of(a0)->clEnqueueReleaseGLObjects(a0, a1, a2, a3, a4, a5) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_mem CL_API_CALL clCreateFromEGLImageKHR(cl_context a0, CLeglDisplayKHR a1, CLeglImageKHR a2, cl_mem_flags a3, const cl_egl_image_properties_khr *a4, cl_int *a5) {
  if (a0) return of(a0)->clCreateFromEGLImageKHR(a0, a1, a2, a3, a4, a5);
  if (a5) *a5 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clEnqueueAcquireEGLObjectsKHR(cl_command_queue a0, cl_uint a1, const cl_mem *a2, cl_uint a3, const cl_event *a4, cl_event *a5) {
  return a0 ? of(a0)->clEnqueueAcquireEGLObjectsKHR(a0, a1, a2, a3, a4, a5) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueReleaseEGLObjectsKHR(cl_command_queue a0, cl_uint a1, const cl_mem *a2, cl_uint a3, const cl_event *a4, cl_event *a5) {
  return a0 ? of(a0)->clEnqueueReleaseEGLObjectsKHR(a0, a1, a2, a3, a4, a5) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_event CL_API_CALL clCreateEventFromEGLSyncKHR(cl_context a0, CLeglSyncKHR a1, CLeglDisplayKHR a2, cl_int *a3) {
  if (a0) return of(a0)->clCreateEventFromEGLSyncKHR(a0, a1, a2, a3);
  if (a3) *a3 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clSetEventCallback(cl_event a0, cl_int a1, void (CL_CALLBACK *a2)(cl_event, cl_int, void *), void *a3) {
  return a0 ? of(a0)->clSetEventCallback(a0, a1, a2, a3) : CL_INVALID_EVENT;
}

EXPORT cl_mem CL_API_CALL clCreateSubBuffer(cl_mem a0, cl_mem_flags a1, cl_buffer_create_type a2, const void *a3, cl_int *a4) {
  if (a0) return of(a0)->clCreateSubBuffer(a0, a1, a2, a3, a4);
  if (a4) *a4 = CL_INVALID_MEM_OBJECT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clSetMemObjectDestructorCallback(cl_mem a0, void (CL_CALLBACK *a1)(cl_mem, void *), void *a2) {
  return a0 ? of(a0)->clSetMemObjectDestructorCallback(a0, a1, a2) : CL_INVALID_MEM_OBJECT;
}

EXPORT cl_event CL_API_CALL clCreateUserEvent(cl_context a0, cl_int *a1) {
  if (a0) return of(a0)->clCreateUserEvent(a0, a1);
  if (a1) *a1 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clSetUserEventStatus(cl_event a0, cl_int a1) {
  return a0 ? of(a0)->clSetUserEventStatus(a0, a1) : CL_INVALID_EVENT;
}

EXPORT cl_int CL_API_CALL clEnqueueReadBufferRect(cl_command_queue a0, cl_mem a1, cl_bool a2, const size_t *a3, const size_t *a4, const size_t *a5, size_t a6, size_t a7, size_t a8, size_t a9, void *a10, cl_uint a11, const cl_event *a12, cl_event *a13) {
  return a0 ? of(a0)->clEnqueueReadBufferRect(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueWriteBufferRect(cl_command_queue a0, cl_mem a1, cl_bool a2, const size_t *a3, const size_t *a4, const size_t *a5, size_t a6, size_t a7, size_t a8, size_t a9, const void *a10, cl_uint a11, const cl_event *a12, cl_event *a13) {
  return a0 ? of(a0)->clEnqueueWriteBufferRect(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueCopyBufferRect(cl_command_queue a0, cl_mem a1, cl_mem a2, const size_t *a3, const size_t *a4, const size_t *a5, size_t a6, size_t a7, size_t a8, size_t a9, cl_uint a10, const cl_event *a11, cl_event *a12) {
  return a0 ? of(a0)->clEnqueueCopyBufferRect(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clCreateSubDevicesEXT(cl_device_id a0, const cl_device_partition_property_ext *a1, cl_uint a2, cl_device_id *a3, cl_uint *a4) {
  return a0 ? of(a0)->clCreateSubDevicesEXT(a0, a1, a2, a3, a4) : CL_INVALID_DEVICE;
}

EXPORT cl_int CL_API_CALL clRetainDeviceEXT(cl_device_id a0) {
  return a0 ? of(a0)->clRetainDeviceEXT(a0) : CL_INVALID_DEVICE;
}

EXPORT cl_int CL_API_CALL clReleaseDeviceEXT(cl_device_id a0) {
  return a0 ? of(a0)->clReleaseDeviceEXT(a0) : CL_INVALID_DEVICE;
}

EXPORT cl_event CL_API_CALL clCreateEventFromGLsyncKHR(cl_context a0, cl_GLsync a1, cl_int *a2) {
  if (a0) return of(a0)->clCreateEventFromGLsyncKHR(a0, a1, a2);
  if (a2) *a2 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clCreateSubDevices(cl_device_id a0, const cl_device_partition_property *a1, cl_uint a2, cl_device_id *a3, cl_uint *a4) {
  return a0 ? of(a0)->clCreateSubDevices(a0, a1, a2, a3, a4) : CL_INVALID_DEVICE;
}

EXPORT cl_int CL_API_CALL clRetainDevice(cl_device_id a0) {
  return a0 ? of(a0)->clRetainDevice(a0) : CL_INVALID_DEVICE;
}

EXPORT cl_int CL_API_CALL clReleaseDevice(cl_device_id a0) {
  return a0 ? of(a0)->clReleaseDevice(a0) : CL_INVALID_DEVICE;
}

EXPORT cl_mem CL_API_CALL clCreateImage(cl_context a0, cl_mem_flags a1, const cl_image_format *a2, const cl_image_desc *a3, void *a4, cl_int *a5) {
  if (a0) return of(a0)->clCreateImage(a0, a1, a2, a3, a4, a5);
  if (a5) *a5 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_program CL_API_CALL clCreateProgramWithBuiltInKernels(cl_context a0, cl_uint a1, const cl_device_id *a2, const char *a3, cl_int *a4) {
  if (a0) return of(a0)->clCreateProgramWithBuiltInKernels(a0, a1, a2, a3, a4);
  if (a4) *a4 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clCompileProgram(cl_program a0, cl_uint a1, const cl_device_id *a2, const char *a3, cl_uint a4, const cl_program *a5, const char **a6, void (CL_CALLBACK *a7)(cl_program, void *), void *a8) {
  return a0 ? of(a0)->clCompileProgram(a0, a1, a2, a3, a4, a5, a6, a7, a8) : CL_INVALID_PROGRAM;
}

EXPORT cl_program CL_API_CALL clLinkProgram(cl_context a0, cl_uint a1, const cl_device_id *a2, const char *a3, cl_uint a4, const cl_program *a5, void (CL_CALLBACK *a6)(cl_program, void *), void *a7, cl_int *a8) {
  if (a0) return of(a0)->clLinkProgram(a0, a1, a2, a3, a4, a5, a6, a7, a8);
  if (a8) *a8 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clUnloadPlatformCompiler(cl_platform_id a0) {
  return a0 ? of(a0)->clUnloadPlatformCompiler(a0) : CL_INVALID_PLATFORM;
}

EXPORT cl_int CL_API_CALL clGetKernelArgInfo(cl_kernel a0, cl_uint a1, cl_kernel_arg_info a2, size_t a3, void *a4, size_t *a5) {
  return a0 ? of(a0)->clGetKernelArgInfo(a0, a1, a2, a3, a4, a5) : CL_INVALID_KERNEL;
}

EXPORT cl_int CL_API_CALL clEnqueueFillBuffer(cl_command_queue a0, cl_mem a1, const void *a2, size_t a3, size_t a4, size_t a5, cl_uint a6, const cl_event *a7, cl_event *a8) {
  return a0 ? of(a0)->clEnqueueFillBuffer(a0, a1, a2, a3, a4, a5, a6, a7, a8) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueFillImage(cl_command_queue a0, cl_mem a1, const void *a2, const size_t *a3, const size_t *a4, cl_uint a5, const cl_event *a6, cl_event *a7) {
  return a0 ? of(a0)->clEnqueueFillImage(a0, a1, a2, a3, a4, a5, a6, a7) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueMigrateMemObjects(cl_command_queue a0, cl_uint a1, const cl_mem *a2, cl_mem_migration_flags a3, cl_uint a4, const cl_event *a5, cl_event *a6) {
  return a0 ? of(a0)->clEnqueueMigrateMemObjects(a0, a1, a2, a3, a4, a5, a6) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueMarkerWithWaitList(cl_command_queue a0, cl_uint a1, const cl_event *a2, cl_event *a3) {
  return a0 ? of(a0)->clEnqueueMarkerWithWaitList(a0, a1, a2, a3) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueBarrierWithWaitList(cl_command_queue a0, cl_uint a1, const cl_event *a2, cl_event *a3) {
  return a0 ? of(a0)->clEnqueueBarrierWithWaitList(a0, a1, a2, a3) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT void *CL_API_CALL clGetExtensionFunctionAddressForPlatform(cl_platform_id a0, const char *a1) {
  return a0 ? of(a0)->clGetExtensionFunctionAddressForPlatform(a0, a1) : NULL;
}

EXPORT cl_mem CL_API_CALL clCreateFromGLTexture(cl_context a0, cl_mem_flags a1, cl_GLenum a2, cl_GLint a3, cl_GLuint a4, cl_int *a5) {
  if (a0) return of(a0)->clCreateFromGLTexture(a0, a1, a2, a3, a4, a5);
  if (a5) *a5 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_command_queue CL_API_CALL clCreateCommandQueueWithProperties(cl_context a0, cl_device_id a1, const cl_queue_properties *a2, cl_int *a3) {
  if (a0) return of(a0)->clCreateCommandQueueWithProperties(a0, a1, a2, a3);
  if (a3) *a3 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_mem CL_API_CALL clCreatePipe(cl_context a0, cl_mem_flags a1, cl_uint a2, cl_uint a3, const cl_pipe_properties *a4, cl_int *a5) {
  if (a0) return of(a0)->clCreatePipe(a0, a1, a2, a3, a4, a5);
  if (a5) *a5 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clGetPipeInfo(cl_mem a0, cl_pipe_info a1, size_t a2, void *a3, size_t *a4) {
  return a0 ? of(a0)->clGetPipeInfo(a0, a1, a2, a3, a4) : CL_INVALID_MEM_OBJECT;
}

EXPORT void *CL_API_CALL clSVMAlloc(cl_context a0, cl_svm_mem_flags a1, size_t a2, cl_uint a3) {
  return a0 ? of(a0)->clSVMAlloc(a0, a1, a2, a3) : NULL;
}

EXPORT void CL_API_CALL clSVMFree(cl_context a0, void *a1) {
  if (a0) of(a0)->clSVMFree(a0, a1);
}

EXPORT cl_int CL_API_CALL clEnqueueSVMFree(cl_command_queue a0, cl_uint a1, void **a2, void (CL_CALLBACK *a3)(cl_command_queue, cl_uint, void **, void *), void *a4, cl_uint a5, const cl_event *a6, cl_event *a7) {
  return a0 ? of(a0)->clEnqueueSVMFree(a0, a1, a2, a3, a4, a5, a6, a7) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueSVMMemcpy(cl_command_queue a0, cl_bool a1, void *a2, const void *a3, size_t a4, cl_uint a5, const cl_event *a6, cl_event *a7) {
  return a0 ? of(a0)->clEnqueueSVMMemcpy(a0, a1, a2, a3, a4, a5, a6, a7) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueSVMMemFill(cl_command_queue a0, void *a1, const void *a2, size_t a3, size_t a4, cl_uint a5, const cl_event *a6, cl_event *a7) {
  return a0 ? of(a0)->clEnqueueSVMMemFill(a0, a1, a2, a3, a4, a5, a6, a7) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueSVMMap(cl_command_queue a0, cl_bool a1, cl_map_flags a2, void *a3, size_t a4, cl_uint a5, const cl_event *a6, cl_event *a7) {
  return a0 ? of(a0)->clEnqueueSVMMap(a0, a1, a2, a3, a4, a5, a6, a7) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clEnqueueSVMUnmap(cl_command_queue a0, void *a1, cl_uint a2, const cl_event *a3, cl_event *a4) {
  return a0 ? of(a0)->clEnqueueSVMUnmap(a0, a1, a2, a3, a4) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_sampler CL_API_CALL clCreateSamplerWithProperties(cl_context a0, const cl_sampler_properties *a1, cl_int *a2) {
  if (a0) return of(a0)->clCreateSamplerWithProperties(a0, a1, a2);
  if (a2) *a2 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clSetKernelArgSVMPointer(cl_kernel a0, cl_uint a1, const void *a2) {
  return a0 ? of(a0)->clSetKernelArgSVMPointer(a0, a1, a2) : CL_INVALID_KERNEL;
}

EXPORT cl_int CL_API_CALL clSetKernelExecInfo(cl_kernel a0, cl_kernel_exec_info a1, size_t a2, const void *a3) {
  return a0 ? of(a0)->clSetKernelExecInfo(a0, a1, a2, a3) : CL_INVALID_KERNEL;
}

EXPORT cl_int CL_API_CALL clGetKernelSubGroupInfoKHR(cl_kernel a0, cl_device_id a1, cl_kernel_sub_group_info a2, size_t a3, const void *a4, size_t a5, void *a6, size_t *a7) {
  return a0 ? of(a0)->clGetKernelSubGroupInfoKHR(a0, a1, a2, a3, a4, a5, a6, a7) : CL_INVALID_KERNEL;
}

EXPORT cl_kernel CL_API_CALL clCloneKernel(cl_kernel a0, cl_int *a1) {
  if (a0) return of(a0)->clCloneKernel(a0, a1);
  if (a1) *a1 = CL_INVALID_KERNEL;
  return NULL;
}

EXPORT cl_program CL_API_CALL clCreateProgramWithIL(cl_context a0, const void *a1, size_t a2, cl_int *a3) {
  if (a0) return of(a0)->clCreateProgramWithIL(a0, a1, a2, a3);
  if (a3) *a3 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clEnqueueSVMMigrateMem(cl_command_queue a0, cl_uint a1, const void **a2, const size_t *a3, cl_mem_migration_flags a4, cl_uint a5, const cl_event *a6, cl_event *a7) {
  return a0 ? of(a0)->clEnqueueSVMMigrateMem(a0, a1, a2, a3, a4, a5, a6, a7) : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clGetDeviceAndHostTimer(cl_device_id a0, cl_ulong *a1, cl_ulong *a2) {
  return a0 ? of(a0)->clGetDeviceAndHostTimer(a0, a1, a2) : CL_INVALID_DEVICE;
}

EXPORT cl_int CL_API_CALL clGetHostTimer(cl_device_id a0, cl_ulong *a1) {
  return a0 ? of(a0)->clGetHostTimer(a0, a1) : CL_INVALID_DEVICE;
}

EXPORT cl_int CL_API_CALL clGetKernelSubGroupInfo(cl_kernel a0, cl_device_id a1, cl_kernel_sub_group_info a2, size_t a3, const void *a4, size_t a5, void *a6, size_t *a7) {
  return a0 ? of(a0)->clGetKernelSubGroupInfo(a0, a1, a2, a3, a4, a5, a6, a7) : CL_INVALID_KERNEL;
}

EXPORT cl_int CL_API_CALL clSetDefaultDeviceCommandQueue(cl_context a0, cl_device_id a1, cl_command_queue a2) {
  return a0 ? of(a0)->clSetDefaultDeviceCommandQueue(a0, a1, a2) : CL_INVALID_CONTEXT;
}

EXPORT cl_int CL_API_CALL clSetProgramReleaseCallback(cl_program a0, void (CL_CALLBACK *a1)(cl_program, void *), void *a2) {
  return a0 ? of(a0)->clSetProgramReleaseCallback(a0, a1, a2) : CL_INVALID_PROGRAM;
}

EXPORT cl_int CL_API_CALL clSetProgramSpecializationConstant(cl_program a0, cl_uint a1, size_t a2, const void *a3) {
  return a0 ? of(a0)->clSetProgramSpecializationConstant(a0, a1, a2, a3) : CL_INVALID_PROGRAM;
}

EXPORT cl_mem CL_API_CALL clCreateBufferWithProperties(cl_context a0, const cl_mem_properties *a1, cl_mem_flags a2, size_t a3, void *a4, cl_int *a5) {
  if (a0) return of(a0)->clCreateBufferWithProperties(a0, a1, a2, a3, a4, a5);
  if (a5) *a5 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_mem CL_API_CALL clCreateImageWithProperties(cl_context a0, const cl_mem_properties *a1, cl_mem_flags a2, const cl_image_format *a3, const cl_image_desc *a4, void *a5, cl_int *a6) {
  if (a0) return of(a0)->clCreateImageWithProperties(a0, a1, a2, a3, a4, a5, a6);
  if (a6) *a6 = CL_INVALID_CONTEXT;
  return NULL;
}

EXPORT cl_int CL_API_CALL clSetContextDestructorCallback(cl_context a0, void (CL_CALLBACK *a1)(cl_context, void *), void *a2) {
  return a0 ? of(a0)->clSetContextDestructorCallback(a0, a1, a2) : CL_INVALID_CONTEXT;
}
