/* fakedcmi plays libdcmi.so for tests: a card with two chips and its controller.
 * The names and structures are those of dcmi_interface_api.h, declared anew. */
#include <stdio.h>
#include <string.h>

struct dcmi_chip_info {
	unsigned char chip_type[32], chip_name[32], chip_ver[32];
	unsigned int aicore_cnt;
};
struct dcmi_pcie_info_all {
	unsigned int venderid, subvenderid, deviceid, subdeviceid;
	int domain;
	unsigned int bdf_busid, bdf_deviceid, bdf_funcid;
	unsigned char reserve[32];
};
struct dcmi_hbm_info {
	unsigned long long memory_size;
	unsigned int freq;
	unsigned long long memory_usage;
	int temp;
	unsigned int bandwith_util_rate;
};
struct dcmi_get_memory_info_stru {
	unsigned long long memory_size, memory_available;
	unsigned int freq;
	unsigned long hugepagesize, hugepages_total, hugepages_free;
	unsigned int utiliza;
	unsigned char reserve[60];
};
struct dcmi_ecc_info {
	int enable_flag;
	unsigned int single_bit_error_cnt, double_bit_error_cnt, total_single_bit_error_cnt, total_double_bit_error_cnt, single_bit_isolated_pages_cnt, double_bit_isolated_pages_cnt;
};
enum { NOT_SUPPORT = -8255 };

int dcmi_init(void) { return 0; }
int dcmi_get_card_list(int *n, int *list, int len) {
	if (len < 16) return -8001;
	*n = 1, list[0] = 4;
	return 0;
}
int dcmi_get_device_num_in_card(int card, int *n) {
	*n = 3;
	return card == 4 ? 0 : -8001;
}
int dcmi_get_device_type(int card, int device, int *type) {
	(void)card;
	*type = device == 2 ? 1 : 0;
	return 0;
}
int dcmi_get_device_chip_info(int card, int device, struct dcmi_chip_info *c) {
	(void)card;
	memset(c, 0, sizeof *c);
	snprintf((char *)c->chip_type, 32, "Ascend");
	snprintf((char *)c->chip_name, 32, "FAKE910B%d", device);
	return 0;
}
int dcmi_get_device_pcie_info_v2(int card, int device, struct dcmi_pcie_info_all *p) {
	(void)card;
	memset(p, 0, sizeof *p);
	p->domain = 1, p->bdf_busid = 0xc1, p->bdf_deviceid = 2, p->bdf_funcid = device;
	return 0;
}
int dcmi_get_device_hbm_info(int card, int device, struct dcmi_hbm_info *h) {
	(void)card;
	if (device == 1) return NOT_SUPPORT;
	memset(h, 0, sizeof *h);
	h->memory_size = 65536, h->memory_usage = 4096;
	return 0;
}
int dcmi_get_device_memory_info_v3(int card, int device, struct dcmi_get_memory_info_stru *m) {
	(void)card, (void)device;
	memset(m, 0, sizeof *m);
	m->memory_size = 24576, m->memory_available = 24000, m->utiliza = 2;
	return 0;
}
int dcmi_get_device_temperature(int card, int device, int *t) {
	(void)card;
	*t = 52 + device;
	return 0;
}
int dcmi_get_device_power_info(int card, int device, int *p) {
	(void)card;
	*p = 943 + device;
	return 0;
}
int dcmi_get_device_utilization_rate(int card, int device, int type, unsigned *rate) {
	(void)card;
	*rate = 61 + device;
	return type == 2 ? 0 : NOT_SUPPORT;
}
int dcmi_get_device_ecc_info(int card, int device, int type, struct dcmi_ecc_info *e) {
	(void)card;
	if (type != 2 || device == 1) return NOT_SUPPORT;
	memset(e, 0, sizeof *e);
	e->total_double_bit_error_cnt = 7, e->double_bit_error_cnt = 1;
	return 0;
}
