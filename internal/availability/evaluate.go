package availability

import (
	"fmt"

	"yunhe.dev/yunhe/internal/core"
)

// Evaluate says how available a checked system is that is split as given: each
// module once, in any order, with each of its submodules in one microservice.
// Instances are those of the system. It returns fault.Invalid with every
// mistake, with paths such as "modules[2].microservices[0].submodules[1]".
func Evaluate(s *System, modules []ModulePlan) (*Plan, error) {
	var c core.Check
	at := make(map[string]int, len(s.Modules))
	for i := range s.Modules {
		at[s.Modules[i].Name] = i
	}
	splits := make([][][]int, len(s.Modules))
	for i, mp := range modules {
		field := fmt.Sprintf("modules[%d]", i)
		k, known := at[mp.Name]
		switch {
		case !known:
			c.Add(field+".name", "must be a module of the system, got %q", mp.Name)
		case splits[k] != nil:
			c.Add(field+".name", "must differ from the others, got %q twice", mp.Name)
		default:
			splits[k] = indices(&c, field, &s.Modules[k], mp.Microservices)
		}
	}
	for i := range splits {
		if splits[i] == nil {
			c.Add("modules", "must split every module of the system, %q is missing", s.Modules[i].Name)
		}
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	return newPlanner(s).plan("", splits), nil
}

// indices finds the submodules named, each once and in a microservice.
func indices(c *core.Check, field string, m *Module, microservices [][]string) [][]int {
	at := make(map[string]int, len(m.Submodules))
	for j := range m.Submodules {
		at[m.Submodules[j].Name] = j
	}
	split := make([][]int, len(microservices))
	for i, names := range microservices {
		one := fmt.Sprintf("%s.microservices[%d].submodules", field, i)
		if len(names) == 0 {
			c.Add(one, "must name at least one submodule")
		}
		for k, name := range names {
			j, left := at[name]
			if !left {
				c.Add(fmt.Sprintf("%s[%d]", one, k), "must be a submodule of module %q that is in no other microservice, got %q", m.Name, name)
			}
			delete(at, name)
			split[i] = append(split[i], j)
		}
	}
	for j := range m.Submodules {
		if _, left := at[m.Submodules[j].Name]; left {
			c.Add(field+".microservices", "must hold every submodule of module %q, %q is missing", m.Name, m.Submodules[j].Name)
		}
	}
	return split
}
