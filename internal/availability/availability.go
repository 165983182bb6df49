// Package availability plans which submodules of a system share a
// microservice, so that the system is available enough with as few
// microservices as possible, or as cheaply as possible.
//
// # Model
//
// A system is a series of modules, a module a series of submodules. The
// submodules of a module are split into microservices; a microservice runs as
// several equal instances, and an instance is up when all submodules in it
// are. With a_j the availability of a submodule, k instances and G the
// submodules of one microservice:
//
//	instance      a = Π a_j over G
//	microservice  1 − (1 − a)^k
//	module        Π over its microservices
//	system        Π over its modules
//
// Two things real systems have are added. Common cause: with probability β the
// instances of a microservice fail together or not at all, so it is down with
// probability β·u + (1−β)·u^k, u = 1 − a. Sites: instances are spread over
// sites in turn, and a site that is down takes its instances with it.
//
// # Method
//
// Logarithms turn the product into a sum: with s = −Σ ln a_j a microservice
// costs the loss f(s) = −ln(1 − (1 − e^−s)^k), and the losses of all must not
// exceed −ln(target). f is convex, which makes most of it exact and fast:
//
//   - Equal submodules: the best split into I microservices is the most even one,
//     and the losses of I = 1, 2, … are convex again.
//   - Unequal ones: dynamic programming over the multiset of those left, as long
//     as that is small; beyond it the longest-first rule with exchanges, and the
//     water-filling bound says how far it can be from the best.
//   - Over the modules, taking the largest gain next is exact for convex curves.
//     For others their lower convex hulls give a bound, and dynamic programming
//     over the number of microservices the exact answer where that is small.
//
// A plan says whether its number is proven to be the smallest.
//
// Everything here is pure: no I/O, no clock, and randomness from a given seed.
package availability

import (
	"fmt"
	"math"
	"strings"

	"yunhe.dev/yunhe/internal/core"
)

// Limits of a system that can be planned.
const (
	MaxModules    = 10_000
	MaxSubmodules = 10_000 // of one module
	MaxAll        = 2_000_000
	MaxInstances  = 100
	MaxSites      = 8
	maxAllSites   = 5000
)

// DefaultAvailability is that of a submodule which states none.
const DefaultAvailability = 0.99

// System is what is to be planned.
type System struct {
	Modules []Module `json:"modules" yaml:"modules"`
	// Instances of each microservice: backups and the one they back up.
	Instances int `json:"instances,omitempty" yaml:"instances"`
	// Target is the availability wanted, 0 to 1 without the ends.
	Target float64 `json:"target,omitempty" yaml:"target"`
	// CommonCause is the probability that the instances of a microservice fail
	// together or not at all, 0 to 1.
	CommonCause float64 `json:"common_cause,omitempty" yaml:"common_cause"`
	// Sites the instances are spread over; none: sites do not fail.
	Sites []Site `json:"sites,omitempty" yaml:"sites"`
	// Dependencies between submodules, as pairs of names "module/submodule"
	// with a strength; only the clustering method reads them.
	Dependencies []Dependency `json:"dependencies,omitempty" yaml:"dependencies"`
}

// Module is a part of a system that it cannot do without.
type Module struct {
	Name       string      `json:"name" yaml:"name"`
	Submodules []Submodule `json:"submodules" yaml:"submodules"`
	// Instances of each microservice of this module; 0: as the system says.
	Instances int `json:"instances,omitempty" yaml:"instances"`
	// Cost of one instance of a microservice, in any unit; 0 counts as 1.
	Cost int64 `json:"cost,omitempty" yaml:"cost"`
}

// Submodule is what a microservice is made of.
type Submodule struct {
	Name string `json:"name" yaml:"name"`
	// Availability, above 0 and up to 1; 0: DefaultAvailability.
	Availability float64 `json:"availability,omitempty" yaml:"availability"`
}

// Site is a place where instances run.
type Site struct {
	Name         string  `json:"name" yaml:"name"`
	Availability float64 `json:"availability" yaml:"availability"`
}

// Dependency says how closely two submodules work together.
type Dependency struct {
	From     string  `json:"from" yaml:"from"`
	To       string  `json:"to" yaml:"to"`
	Strength float64 `json:"strength,omitempty" yaml:"strength"` // 0 counts as 1
}

// Check refuses a system that cannot be planned and fills in what it leaves to
// defaults. It names every mistake with its field, value and limit.
func (s *System) Check() error {
	var c core.Check
	if len(s.Modules) == 0 || len(s.Modules) > MaxModules {
		c.Add("modules", "must be 1 to %d modules, got %d", MaxModules, len(s.Modules))
	}
	if s.Instances == 0 {
		s.Instances = 3
	}
	c.Range("instances", int64(s.Instances), 1, MaxInstances)
	if s.Target != 0 && !(s.Target > 0 && s.Target < 1) {
		c.Add("target", "must be above 0 and below 1, such as 0.9999, got %v", s.Target)
	}
	if !(s.CommonCause >= 0 && s.CommonCause <= 1) {
		c.Add("common_cause", "must be 0 to 1, got %v", s.CommonCause)
	}
	if len(s.Sites) > MaxSites {
		c.Add("sites", "must be at most %d sites, got %d", MaxSites, len(s.Sites))
	}
	for i := range s.Sites {
		available(&c, fmt.Sprintf("sites[%d].availability", i), s.Sites[i].Availability)
	}
	all, names := 0, map[string]map[string]bool{} // submodules by module
	for i := range s.Modules {
		m, at := &s.Modules[i], fmt.Sprintf("modules[%d]", i)
		if names[m.Name] != nil {
			c.Add(at+".name", "must differ from the others, got %q twice", m.Name)
		}
		all += len(m.Submodules)
		names[m.Name] = m.check(&c, at, s.Instances)
	}
	if len(s.Sites) > 0 && all > maxAllSites {
		c.Add("sites", "can be planned for at most %d submodules in all, got %d", maxAllSites, all)
	}
	if all > MaxAll {
		c.Add("modules", "must have at most %d submodules in all, got %d", MaxAll, all)
	}
	for i := range s.Dependencies {
		d, at := &s.Dependencies[i], fmt.Sprintf("dependencies[%d]", i)
		for _, end := range []struct{ field, name string }{{"from", d.From}, {"to", d.To}} {
			if module, sub, _ := strings.Cut(end.name, "/"); !names[module][sub] {
				c.Add(at+"."+end.field, "must name a submodule as module/submodule, got %q", end.name)
			}
		}
		if d.Strength == 0 {
			d.Strength = 1
		}
		if !(d.Strength > 0) || math.IsInf(d.Strength, 0) {
			c.Add(at+".strength", "must be above 0, got %v", d.Strength)
		}
	}
	return c.Err()
}

// check returns the names of the submodules.
func (m *Module) check(c *core.Check, at string, instances int) map[string]bool {
	switch {
	case m.Name == "":
		c.Add(at+".name", "is required")
	case strings.Contains(m.Name, "/"):
		c.Add(at+".name", "must be without a slash, got %q", m.Name)
	}
	if m.Instances == 0 {
		m.Instances = instances
	}
	c.Range(at+".instances", int64(m.Instances), 1, MaxInstances)
	if m.Cost == 0 {
		m.Cost = 1
	}
	c.Range(at+".cost", m.Cost, 1, 1e9)
	if n := len(m.Submodules); n == 0 || n > MaxSubmodules {
		c.Add(at+".submodules", "must be 1 to %d submodules, got %d", MaxSubmodules, n)
	}
	names := make(map[string]bool, len(m.Submodules))
	for j := range m.Submodules {
		sub := &m.Submodules[j]
		if sub.Availability == 0 {
			sub.Availability = DefaultAvailability
		}
		if sub.Name != "" && !names[sub.Name] && isAvailability(sub.Availability) {
			names[sub.Name] = true
			continue
		}
		at := fmt.Sprintf("%s.submodules[%d]", at, j)
		switch {
		case sub.Name == "":
			c.Add(at+".name", "is required")
		case names[sub.Name]:
			c.Add(at+".name", "must differ from the others of module %q, got %q twice", m.Name, sub.Name)
		}
		names[sub.Name] = true
		available(c, at+".availability", sub.Availability)
	}
	return names
}

func isAvailability(a float64) bool { return a > 0 && a <= 1 }

func available(c *core.Check, field string, a float64) {
	if !isAvailability(a) {
		c.Add(field, "must be above 0 and at most 1, such as 0.999, got %v", a)
	}
}
