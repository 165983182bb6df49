package tags

import (
	"context"
	"fmt"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

var machines = []Kind{Center, Node}

// defaultGroups are the dimensions of S 6.3.3.
var defaultGroups = []Group{
	{ID: "location", Title: "Location", TitleZH: "地理位置"},
	{ID: "type", Title: "Resource type", TitleZH: "资源类型"},
	{ID: "capability", Title: "Capability", TitleZH: "算力能力"},
	{ID: "energy", Title: "Energy", TitleZH: "能耗"},
	{ID: "security", Title: "Security", TitleZH: "安全"},
	{ID: "operation", Title: "Operation", TitleZH: "运行状态"},
	{ID: "business", Title: "Business", TitleZH: "业务"},
}

var defaultTags = []Definition{
	{Key: "region", GroupID: "location", Title: "Region", TitleZH: "区域", Kinds: []Kind{Center, Node, Resource}, Inherited: true},
	{Key: "resource-type", GroupID: "type", Title: "Main kind of compute", TitleZH: "主要算力类型", Kinds: machines, Allowed: []string{"cpu", "gpu", "npu", "mlu", "dcu"}},
	{Key: "accelerator", GroupID: "type", Title: "Main accelerator model", TitleZH: "主要加速卡型号", Kinds: machines},
	{Key: "accelerator-vendor", GroupID: "type", Title: "Main accelerator vendor", TitleZH: "主要加速卡厂商", Kinds: machines},
	{Key: "architecture", GroupID: "type", Title: "CPU architecture", TitleZH: "处理器架构", Kinds: []Kind{Node}},
	{Key: "scale", GroupID: "capability", Title: "Scale of compute", TitleZH: "算力规模", Kinds: []Kind{Center}, Allowed: []string{"small", "medium", "large"}},
	{Key: "power-grade", GroupID: "energy", Title: "Power grade", TitleZH: "功耗等级", Kinds: []Kind{Center}, Allowed: []string{"low", "medium", "high"}},
	{Key: "green", GroupID: "energy", Title: "Runs on renewable energy", TitleZH: "绿色能源", Type: Boolean, Kinds: []Kind{Platform, Center, Node, Resource}, Inherited: true},
	{Key: "security-grade", GroupID: "security", Title: "Security grade", TitleZH: "安全等级", Type: Number, Kinds: machines, Allowed: []string{"0", "1", "2", "3", "4", "5"}, Inherited: true},
	{Key: "load", GroupID: "operation", Title: "Load", TitleZH: "负载", Kinds: []Kind{Center}, Allowed: []string{"idle", "busy"}},
	{Key: "purpose", GroupID: "business", Title: "What it is for", TitleZH: "用途", Inherited: true},
}

// defaultRules generate tags from facts.
var defaultRules = []RuleSpec{
	{ID: "region", Key: "region", Title: "Region as recorded", Kinds: []Kind{Center}, When: `region != ""`, ValueExpression: `region`},
	{ID: "resource-type", Key: "resource-type", Title: "From the capacity", When: `["gpu", "npu", "mlu", "dcu"].exists(r, r in capacity && capacity[r] > 0) || ("cpu" in capacity && capacity["cpu"] > 0)`,
		ValueExpression: `"npu" in capacity && capacity["npu"] > 0 ? "npu" : "mlu" in capacity && capacity["mlu"] > 0 ? "mlu" : "dcu" in capacity && capacity["dcu"] > 0 ? "dcu" : "gpu" in capacity && capacity["gpu"] > 0 ? "gpu" : "cpu"`},
	{ID: "accelerator", Key: "accelerator", Title: "The model it has most of", When: `main_model != ""`, ValueExpression: `main_model`},
	{ID: "accelerator-vendor", Key: "accelerator-vendor", Title: "The vendor of that", When: `main_vendor != ""`, ValueExpression: `main_vendor`},
	{ID: "architecture", Key: "architecture", Title: "Architecture as reported", When: `architecture != ""`, ValueExpression: `architecture`},
	{ID: "scale", Key: "scale", Title: "From the number of cores", When: `"cpu" in capacity && capacity["cpu"] > 0`,
		ValueExpression: `capacity["cpu"] >= 10000 ? "large" : capacity["cpu"] >= 1000 ? "medium" : "small"`},
	{ID: "power-grade", Key: "power-grade", Title: "From the power a core draws", When: `active_milliwatts_per_cpu > 0`,
		ValueExpression: `active_milliwatts_per_cpu < 5000 ? "low" : active_milliwatts_per_cpu < 10000 ? "medium" : "high"`},
	{ID: "security-grade", Key: "security-grade", Title: "Grade as recorded", Kinds: []Kind{Center}, When: `true`, ValueExpression: `string(security_grade)`},
	{ID: "load-busy", Key: "load", Title: "Cores busy for a minute", When: `measured && cpu_busy_percent >= 85`, Until: `!measured || cpu_busy_percent < 70`, Value: "busy", Hold: 60, Priority: 10},
	{ID: "load-idle", Key: "load", Title: "Cores idle for ten minutes", When: `measured && cpu_busy_percent <= 10`, Until: `!measured || cpu_busy_percent > 20`, Value: "idle", Hold: 600},
}

// Defaults fills a new library with the dimensions of the standard, common
// tags and rules that generate them from facts. It does so once: what is
// changed or deleted stays so.
func (s *Service) Defaults(ctx context.Context) error {
	first := false
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `INSERT INTO tag_versions (name, version) VALUES ('defaults', 1) ON CONFLICT DO NOTHING`)
		if first = n == 1; err != nil || !first {
			return err
		}
		groups := map[string]*Group{}
		for _, g := range defaultGroups {
			groups[g.ID] = &g
			if err := writeGroup(ctx, tx, &g); err != nil {
				return err
			}
		}
		defs := map[string]*Definition{}
		for _, d := range defaultTags {
			var c core.Check
			if d.check(&c, groups[d.GroupID]); c.Err() != nil {
				return c.Err()
			}
			if ok, err := insertDefinition(ctx, tx, &d); err != nil || !ok {
				return orExists(err, "tag "+d.Key)
			}
			defs[d.Key] = &d
		}
		for _, r := range defaultRules {
			if _, err := r.check(defs[r.Key]); err != nil {
				return err
			}
			if ok, err := insertRule(ctx, tx, &r); err != nil || !ok {
				return orExists(err, "rule "+r.ID)
			}
		}
		return s.changed(ctx, tx, true)
	})
	if err != nil {
		return fmt.Errorf("fill the library of tags: %w", err)
	}
	return nil
}

func orExists(err error, what string) error {
	if err != nil {
		return err
	}
	return fault.New(fault.Exists, "%s exists already", what)
}
