/* fakersmi plays librocm_smi64.so for tests: one DCU. The names and structures are
 * those of rocm_smi.h, declared anew. */
#include <stdint.h>
#include <stdio.h>

typedef struct {
	uint64_t correctable_err, uncorrectable_err;
} rsmi_error_count_t;
enum { INVALID_ARGS = 1, NOT_SUPPORTED = 2 };

int rsmi_init(uint64_t flags) { return flags != 0; }
int rsmi_num_monitor_devices(uint32_t *n) {
	*n = 1;
	return 0;
}
int rsmi_dev_name_get(uint32_t d, char *s, size_t n) { return d != 0 || snprintf(s, n, "FAKE K100") < 0; }
int rsmi_dev_vendor_name_get(uint32_t d, char *s, uint32_t n) { return d != 0 || snprintf(s, n, "Chengdu Haiguang") < 0; }
int rsmi_dev_pci_id_get(uint32_t d, uint64_t *id) {
	*id = (uint64_t)2 << 32 | 0x0a << 8 | 3 << 3 | d;
	return 0;
}
int rsmi_dev_memory_total_get(uint32_t d, int type, uint64_t *v) {
	*v = (uint64_t)64 << 30;
	return type != 0 || d;
}
int rsmi_dev_memory_usage_get(uint32_t d, int type, uint64_t *v) {
	*v = (uint64_t)3 << 30;
	return type != 0 || d;
}
int rsmi_dev_temp_metric_get(uint32_t d, uint32_t sensor, int metric, int64_t *t) {
	*t = 47500;
	return d || sensor || metric ? INVALID_ARGS : 0;
}
int rsmi_dev_power_ave_get(uint32_t d, uint32_t sensor, uint64_t *uw) {
	*uw = 120500000;
	return d || sensor ? INVALID_ARGS : 0;
}
int rsmi_dev_energy_count_get(uint32_t d, uint64_t *count, float *resolution, uint64_t *timestamp) {
	*count = 1000000, *resolution = 15.3f, *timestamp = 1;
	return d ? INVALID_ARGS : 0;
}
int rsmi_dev_busy_percent_get(uint32_t d, uint32_t *p) {
	*p = 88;
	return d;
}
int rsmi_dev_ecc_count_get(uint32_t d, int block, rsmi_error_count_t *e) {
	if (block != 1 || d) return NOT_SUPPORTED;
	e->correctable_err = 4, e->uncorrectable_err = 1;
	return 0;
}
