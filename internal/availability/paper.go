package availability

// The study "availability-aware split" of source H, clauses 3 to 5: ten
// modules with 24 submodules. The text lists modules and submodules one by
// one; which of the lower layers has how many follows from its Table 1.
var paperModules = []struct {
	name       string
	submodules []string
}{
	{"platform interconnection", []string{"inbound adaptation", "outbound adaptation"}},
	{"compute-network trading", []string{"compute market", "compute applications", "demand deconstruction", "compute matching"}},
	{"compute-network operation", []string{"account interworking", "scheduling management", "trade management", "compute-network monitoring"}},
	{"compute-network packaging", []string{"compute-network awareness", "task packaging"}},
	{"compute-network decision", []string{"orchestration scheduling", "business scheduling", "compute-data collaborative scheduling"}},
	{"multi-cloud control platform", []string{"compute plug-in", "compute measurement", "training-inference framework", "data express"}},
	{"multi-network control platform", []string{"network plug-in"}},
	{"cloud-management platform", []string{"compute identifier"}},
	{"bare-compute control platform", []string{"compute gateway"}},
	{"telecom operator network-management platform", []string{"elastic network", "high-speed transmission"}},
}

// Values of the study.
var (
	PaperSubmodules = []float64{0.9, 0.95, 0.99, 0.995, 0.999}
	PaperTargets    = []float64{0.99, 0.999, 0.9995, 0.9999, 0.99999}
	PaperBackups    = []int{1, 2, 3, 4, 5}
)

// paperClusters are the sizes of the study's clusters. It does not say what is
// in them; these sizes are the only ones that fit its figures.
var paperClusters = []int{7, 4, 2, 2, 2, 2, 2, 1, 1, 1}

// paperTable is Table 1 in per cent, a row for each method and target, a
// column for each of PaperSubmodules.
var paperTable = []struct {
	method Method
	target float64
	values [5]float64
}{
	{None, 0, [5]float64{84.50837, 97.50455, 99.97636, 99.99699, 99.99998}},
	{Aware, 0.99, [5]float64{97.62740, 99.02747, 99.97636, 99.99699, 99.99998}},
	{Aware, 0.999, [5]float64{97.62740, 99.70043, 99.97636, 99.99699, 99.99998}},
	{Aware, 0.9995, [5]float64{97.62740, 99.70043, 99.97636, 99.99699, 99.99998}},
	{Aware, 0.9999, [5]float64{97.62740, 99.70043, 99.99058, 99.99699, 99.99998}},
	{Aware, 0.99999, [5]float64{97.62740, 99.70043, 99.99760, 99.99903, 99.99998}},
	{Full, 0, [5]float64{97.62740, 99.70043, 99.99760, 99.99970, 99.99999}},
	{Clustered, 0, [5]float64{79.28817, 96.15107, 99.95829, 99.99459, 99.99996}},
}

// PaperSystem is the study's system with equal submodules.
func PaperSystem(submodule float64, backups int, target float64) *System {
	s := &System{Instances: backups + 1, Target: target}
	for _, m := range paperModules {
		mod := Module{Name: m.name}
		for _, sub := range m.submodules {
			mod.Submodules = append(mod.Submodules, Submodule{Name: sub, Availability: submodule})
		}
		s.Modules = append(s.Modules, mod)
	}
	// The clusters: each depends on the one before, within its size.
	var names []string
	for _, m := range s.Modules {
		for _, sub := range m.Submodules {
			names = append(names, m.Name+"/"+sub.Name)
		}
	}
	at := 0
	for _, size := range paperClusters {
		for i := at + 1; i < at+size; i++ {
			s.Dependencies = append(s.Dependencies, Dependency{From: names[i-1], To: names[i]})
		}
		at += size
	}
	return s
}

// Cell is a value of the study beside ours.
type Cell struct {
	Method    Method   `json:"method"`
	Target    *float64 `json:"target"`
	Submodule float64  `json:"submodule"`
	// Per cent.
	Availability  float64 `json:"availability"`
	Microservices int     `json:"microservices"`
	Paper         float64 `json:"paper"`
	// Whether the target is reached; true where there is none.
	Reachable bool `json:"reachable"`
	// Better says that the study's value is not the optimum and ours is higher.
	Better bool `json:"better,omitempty"`
}

// Count is a point of Figures 9 and 10.
type Count struct {
	Backups       int     `json:"backups"`
	Target        float64 `json:"target"`
	Submodule     float64 `json:"submodule"`
	Microservices int     `json:"microservices"`
	// Per cent.
	Availability float64 `json:"availability"`
	Reachable    bool    `json:"reachable"`
}

// Reproduction is the study's evaluation computed anew.
type Reproduction struct {
	Table1 []Cell `json:"table1"`
	// Figure9 has the number of microservices by the availability required,
	// with two backups.
	Figure9 []Count `json:"figure9"`
	// Figure10 has it by the number of backups, where 99.9 % is required.
	Figure10 []Count `json:"figure10"`
}

// Reproduce computes Table 1 and Figures 9 and 10 of the study.
func Reproduce() (*Reproduction, error) {
	out := &Reproduction{}
	for _, row := range paperTable {
		for i, a := range PaperSubmodules {
			plan, err := paperPlan(row.method, a, 2, row.target)
			if err != nil {
				return nil, err
			}
			c := Cell{Method: row.method, Submodule: a, Availability: 100 * plan.Availability, Microservices: plan.Microservices, Paper: row.values[i], Reachable: true}
			if row.target > 0 {
				c.Target, c.Reachable = &row.target, plan.Reachable
			}
			c.Better = c.Availability > c.Paper+0.00001
			out.Table1 = append(out.Table1, c)
		}
	}
	count := func(to *[]Count, a float64, backups int, target float64) error {
		plan, err := paperPlan(Aware, a, backups, target)
		if err == nil {
			*to = append(*to, Count{backups, target, a, plan.Microservices, 100 * plan.Availability, plan.Reachable})
		}
		return err
	}
	for _, a := range PaperSubmodules {
		for _, t := range PaperTargets {
			if err := count(&out.Figure9, a, 2, t); err != nil {
				return nil, err
			}
		}
		for _, b := range PaperBackups {
			if err := count(&out.Figure10, a, b, 0.999); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func paperPlan(method Method, submodule float64, backups int, target float64) (*Plan, error) {
	s := PaperSystem(submodule, backups, target)
	if err := s.Check(); err != nil {
		return nil, err
	}
	return Make(s, method)
}
