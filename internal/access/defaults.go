package access

import (
	"context"
	"fmt"
	"sync"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// defaultRules come with the program. What an operator changed or deleted
// stays as they left it: only what was never there is put there.
func defaultRules() []Rule {
	rule := func(kind Kind, severity Severity, id, title, zh, known, condition, message string) Rule {
		return Rule{Meta: Meta{ID: id}, Title: title, TitleZH: zh, Kind: kind, Severity: severity, Known: known, Condition: condition, Message: message, Enabled: true}
	}
	applies := func(r Rule, text string) Rule { r.Applies = text; return r }
	return []Rule{
		rule(Center, Critical, "center-connected", "A plug-in or gateway reaches it", "由插件或网关接入", "connection != \"starting\"", `connection in ["up", "standby"]`,
			"See what the plug-in says: yunhe plugin list, or start the gateway."),
		rule(Center, Critical, "center-reported", "Heard of within 30 s", "30 秒内有上报", "seen", "seen_seconds <= 30", "Check the network and the process that reports."),
		rule(Center, Major, "center-clock", "Its clock is right to 5 s", "时钟偏差不超过 5 秒", "clock_known", "clock_skew_seconds > -5.0 && clock_skew_seconds < 5.0", "Synchronize its clock (NTP)."),
		rule(Center, Major, "center-figures", "Its figures can be", "指标数值合理", "measured", "size(refused) == 0", "Mend the driver that measures; the log names the figures."),
		rule(Center, Major, "center-capacity", "It declares what it has", "已声明资源容量", "", `"cpu" in capacity && capacity["cpu"] > 0 && "memory" in capacity && capacity["memory"] > 0`,
			"Let the driver or gateway declare CPU and memory."),
		applies(rule(Center, Major, "center-architecture", "The architecture of its nodes is known", "节点架构已知", "", `!("" in architectures)`, "Let the driver report the architecture, or convert its word."),
			`"total" in nodes && nodes["total"] > 0`),
		rule(Center, Advice, "center-region", "It declares its region", "已声明区域", "", `region != ""`, "Set its region: yunhe center, or in the gateway's configuration."),
		rule(Center, Advice, "center-place", "It declares its place", "已声明地理位置", "", "located", "Set longitude and latitude, so that distance counts in placing."),
		rule(Center, Advice, "center-security", "It has a security grade", "已设定安全等级", "", "security_grade >= 1", "Set a security grade of 1 to 5."),
		rule(Center, Advice, "center-performance", "Its speed was measured", "性能已测评", "", "performance > 0", "Measure it: start the gateway with --measure, or run the benchmark."),
		rule(Center, Advice, "center-loss", "Paths lose at most 5 %", "链路丢包率不超过 5%", "path_known", "loss_percent <= 5.0", "Look at the network between the center and the platform."),
		rule(Center, Advice, "center-latency", "Paths answer within 500 ms", "链路时延不超过 500 毫秒", "path_known", "latency_ms <= 500.0", "Look at the network between the center and the platform."),
		rule(Node, Major, "node-architecture", "Its architecture is one we know", "节点架构为已知类型", "",
			`architecture in ["amd64", "arm64", "loong64", "riscv64", "sw64", "ppc64le", "s390x", "mips64le", "386", "arm"]`, "Convert its word: yunhe access conversion."),
		rule(Node, Major, "node-capacity", "It declares processors and memory", "已声明处理器与内存", "", `"cpu" in capacity && capacity["cpu"] > 0 && "memory" in capacity && capacity["memory"] > 0`,
			"Let the driver report what the node has."),
		applies(rule(Center, Major, "center-class", "It is connected as its class is", "接入方式符合其算力类别", "", "adapter in class_plugins",
			"Connect it as its class says (yunhe access classes), or mend its labels."), `adapter in ["gateway", "kubernetes", "slurm"]`),
		applies(rule(Node, Advice, "node-models", "The models of its accelerators are known", "加速卡型号已知", "", `!("" in models)`, "Let the driver report the model, or convert its word."), "size(accelerators) > 0"),
		rule(Registered, Advice, "resource-provider", "Its provider is named", "已注明服务提供方", "", `provider != ""`, "Name the service provider."),
		rule(Registered, Major, "resource-state", "It is not unavailable", "资源未处于不可用状态", `state != "registered"`, `state != "unavailable"`, "See why it is unavailable, or retire it."),
		applies(rule(Registered, Major, "resource-endpoint", "Its interface is encrypted", "接口地址使用加密传输", "", `string(attributes["endpoint"]).startsWith("https://")`, "Offer the interface over https."),
			`"endpoint" in attributes`),
		applies(rule(Registered, Advice, "cloud-version", "The version of its interface is known", "接口版本已知", "", `"api_version" in attributes`, "Add api_version to its attributes."), `type == "cloud"`),
	}
}

// defaultConversions are words that systems use for what we call otherwise.
func defaultConversions() []Conversion {
	word := func(id, title string, f Field, match, replace string) Conversion {
		return Conversion{Meta: Meta{ID: id}, Title: title, Field: f, Match: match, Replace: replace, Enabled: true}
	}
	off := func(c Conversion) Conversion { c.Enabled = false; return c }
	return []Conversion{
		word("arch-amd64", "x86_64 and its other names", Architecture, `(?i)x86[_-]64|x64|em64t|intel64`, "amd64"),
		word("arch-arm64", "aarch64 and its other names", Architecture, `(?i)aarch64|armv8l?|arm64e?`, "arm64"),
		word("arch-loong64", "LoongArch", Architecture, `(?i)loongarch64|loongson`, "loong64"),
		word("arch-riscv64", "RISC-V", Architecture, `(?i)riscv64gc|risc-v64`, "riscv64"),
		word("arch-sw64", "Sunway", Architecture, `(?i)sw_?64`, "sw64"),
		word("os-linux", "Linux by any case", OperatingSystem, `(?i)linux`, "linux"),
		word("vendor-nvidia", "NVIDIA by any case", Vendor, `(?i)nvidia( corporation)?`, "NVIDIA"),
		word("vendor-amd", "AMD by any case", Vendor, `(?i)amd|advanced micro devices.*`, "AMD"),
		word("vendor-huawei", "Huawei by any case", Vendor, `(?i)huawei|ascend|华为`, "Huawei"),
		word("vendor-cambricon", "Cambricon by any case", Vendor, `(?i)cambricon|寒武纪`, "Cambricon"),
		word("vendor-hygon", "Hygon by any case", Vendor, `(?i)hygon|海光`, "Hygon"),
		word("model-nvidia-full", "A100-SXM4-80GB and the like by their short names", Model, `(?i)(?:nvidia[ -])?(?:tesla[ -])?([AHBVLTP][0-9]{1,4}S?)-(?:SXM|PCIE|NVL|OAM)[A-Z0-9-]*`, "$1"),
		word("model-ascend", "Ascend 910B and the like", Model, `(?i)ascend[ -]?([0-9]{3}[A-Za-z0-9]*)`, "Ascend $1"),
		word("resource-nvidia", "NVIDIA's GPUs as Kubernetes names them", Resource, `nvidia\.com/gpu`, "gpu"),
		word("resource-amd", "AMD's GPUs as Kubernetes names them", Resource, `amd\.com/gpu`, "gpu"),
		word("resource-ascend", "Ascend NPUs as Kubernetes names them", Resource, `huawei\.com/Ascend[0-9A-Za-z]*`, "npu"),
		word("resource-cambricon", "Cambricon MLUs as Kubernetes names them", Resource, `cambricon\.com/(?:mlu|MLU)[0-9]*`, "mlu"),
		word("resource-hygon", "Hygon DCUs as Kubernetes names them", Resource, `hygon\.com/dcu`, "dcu"),
		// Jobs name regions: which words they use is an operator's choice.
		off(word("region-cn", "Regions of clouds in China without cn-", Region, `cn-([a-z]+)(?:-[0-9a-z]+)?`, "$1")),
	}
}

// seedVersion counts how often the lists above grew.
const seedVersion = 2

// defaults puts there what came with the program and was never there.
func (s *Service) defaults(ctx context.Context) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		st, err := readState(ctx, tx)
		if err != nil || st.seeded >= seedVersion {
			return err
		}
		put := func(kind int64, id string, body any) error {
			n, err := count(ctx, tx, `SELECT COUNT(*) FROM access_versions WHERE kind = $1 AND id = $2`, kind, id)
			if err != nil || n > 0 {
				return err
			}
			return writeDocument(ctx, tx, document{kind: kind, id: id, version: 1, body: toJSON(body), at: db.Micros(tx.Now)}, true)
		}
		for _, r := range defaultRules() {
			if err := r.check(); err != nil {
				return fmt.Errorf("rule %s: %w", r.ID, err)
			}
			if err := put(kindRule, r.ID, r); err != nil {
				return err
			}
		}
		for _, c := range defaultConversions() {
			if err := c.check("conversion."); err != nil {
				return fmt.Errorf("conversion %s: %w", c.ID, err)
			}
			if err := put(kindConversion, c.ID, c); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `UPDATE access_state SET seeded = $1, changes = changes + 1 WHERE name = 'access'`, int64(seedVersion))
		return err
	})
}

// Class is a class of compute.
type Class struct {
	ID, Title, TitleZH string
	Condition          string   // CEL over a center; the first class that fits counts
	Plugins            []string // how it is connected, the recommended way first
	Protocols          []string
	Centers            int64

	condition *expr.Expr
}

// classes fix how compute of each class is connected.
var classes = sync.OnceValue(func() []Class {
	list := []Class{
		{ID: "edge", Title: "Edge compute", TitleZH: "边缘算力", Condition: `source_type == "edge_cloud" || ("tier" in labels && labels["tier"] == "edge")`,
			Plugins: []string{"gateway"}, Protocols: []string{"nats"}},
		{ID: "super", Title: "Supercomputing", TitleZH: "超级计算", Condition: `source_type == "batch_cluster"`, Plugins: []string{"slurm"}, Protocols: []string{"https+slurmrestd"}},
		{ID: "intelligent", Title: "Intelligent computing", TitleZH: "智能计算",
			Condition: `size(models) > 0 || ["gpu", "npu", "mlu", "dcu", "tpu"].exists(r, r in capacity && capacity[r] > 0)`,
			Plugins:   []string{"kubernetes", "gateway"}, Protocols: []string{"https+kubernetes", "nats"}},
		{ID: "general", Title: "General computing", TitleZH: "通用计算", Condition: "true", Plugins: []string{"gateway", "kubernetes"}, Protocols: []string{"nats", "https+kubernetes"}},
	}
	for i := range list {
		e, problems := expr.Compile(expr.AccessCenter, list[i].Condition)
		if e == nil {
			panic(fmt.Sprint(list[i].ID, problems))
		}
		list[i].condition = e
	}
	return list
})

// classify returns the class of a center, "" if it does not meet the conditions.
func classify(status Status, facts expr.Facts) string {
	if c := classOf(facts); c != nil && status != NonCompliant {
		return c.ID
	}
	return ""
}

// classOf returns the class that the facts of a center make it be of, or nil.
func classOf(facts expr.Facts) *Class {
	list := classes()
	for i := range list {
		if ok, _ := list[i].condition.Holds(facts); ok { // what cannot be said does not fit
			return &list[i]
		}
	}
	return nil
}
