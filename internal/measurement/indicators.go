package measurement

import (
	"bytes"
	_ "embed"
	"slices"
	"sync"

	"go.yaml.in/yaml/v3"
)

// Kind of an indicator.
type Kind string

// The kinds (H 2.3.3, M6.2).
const (
	Static   Kind = "static"
	Dynamic  Kind = "dynamic"
	Combined Kind = "combined"
)

// Indicator says what is measured.
type Indicator struct {
	ID        string `yaml:"id"`
	Title     string `yaml:"title"`
	TitleZH   string `yaml:"zh"`
	Kind      Kind   `yaml:"kind"`
	Domain    string `yaml:"domain"` // compute, storage, network, service
	Aspect    string `yaml:"aspect"` // specification, function, performance
	Unit      string `yaml:"unit"`
	Source    string `yaml:"source"`
	Clause    string `yaml:"clause"`
	Precision string `yaml:"precision"`
	Lower     bool   `yaml:"lower"` // less is better
}

//go:embed indicators.yaml
var indicatorData []byte

// The scheme as it is embedded, and where each indicator is in it; they never change.
var (
	scheme = sync.OnceValue(loadIndicators)
	order  = sync.OnceValue(func() map[string]int { return indexIndicators(scheme()) })
)

// loadIndicators panics on data that fail: the tests read them.
func loadIndicators() []Indicator {
	d := yaml.NewDecoder(bytes.NewReader(indicatorData))
	d.KnownFields(true)
	var out []Indicator
	if err := d.Decode(&out); err != nil {
		panic("the indicators that come with the program: " + err.Error())
	}
	return out
}

func indexIndicators(list []Indicator) map[string]int {
	out := map[string]int{}
	for i, x := range list {
		out[x.ID] = i
	}
	return out
}

// Indicators returns the scheme, in the order it is shown. It is the caller's.
func Indicators() []Indicator { return slices.Clone(scheme()) }
