/* opens finds OpenCL as programs do that are not linked with it: by a name. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!library) {
		puts(dlerror());
		return 1;
	}
	int (*platforms)(unsigned, void **, unsigned *) = (int (*)(unsigned, void **, unsigned *))dlsym(library, "clGetPlatformIDs");
	int (*devices)(void *, unsigned long, unsigned, void **, unsigned *) = (int (*)(void *, unsigned long, unsigned, void **, unsigned *))dlsym(library, "clGetDeviceIDs");
	void *first = NULL;
	unsigned n = 0, m = 0;
	if (!platforms || !devices || platforms(1, &first, &n) || devices(first, 0xFFFFFFFF, 0, NULL, &m)) {
		puts("it is no loader");
		return 1;
	}
	printf("%u platform, %u device\n", n, m);
	return 0;
}
