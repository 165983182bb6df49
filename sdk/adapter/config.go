package adapter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/jsonschema-go/jsonschema"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// The environment of a driver that Yunhe starts, next to [SocketEnv].
const (
	// CenterEnv has the ID of the center the driver is to serve.
	CenterEnv = "YUNHE_DRIVER_CENTER"
	// ConfigEnv has the path of the driver's configuration, a JSON object as
	// its schema asks for. Only the driver's user can read it.
	ConfigEnv = "YUNHE_DRIVER_CONFIG"
)

// Center returns the ID of the center this driver is to serve, def if Yunhe
// did not say.
func Center(def string) string {
	if id := os.Getenv(CenterEnv); id != "" {
		return id
	}
	return def
}

// Config reads the driver's configuration into v, a pointer to a struct with
// json tags; without one v stays as it is. Unknown keys are errors.
func Config(v any) error {
	path := os.Getenv(ConfigEnv)
	if path == "" {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the driver's configuration cannot be read: %w", err)
	}
	return ParseConfig(b, v)
}

// ParseConfig is [Config] for a configuration at hand.
func ParseConfig(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("the driver's configuration is not right: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the driver's configuration must be one JSON object")
	}
	return nil
}

// Schema returns the JSON Schema of a configuration, a struct with json tags;
// `jsonschema` tags describe its fields. Fields without omitempty or omitzero
// are required, and others than those of the struct are refused.
func Schema[T any]() (string, error) {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		return "", fmt.Errorf("schema of the configuration: %w", err)
	}
	b, err := json.Marshal(s)
	return string(b), err
}

// Declared is what no cluster knows of itself and its operator writes into
// the driver's configuration. Embed it in the configuration's struct.
type Declared struct {
	Name          string  `json:"name,omitempty" jsonschema:"name of the center, its ID if empty"`
	Region        string  `json:"region,omitempty" jsonschema:"where it is, for example guizhou"`
	Longitude     float64 `json:"longitude,omitempty" jsonschema:"degrees"`
	Latitude      float64 `json:"latitude,omitempty" jsonschema:"degrees"`
	SecurityGrade int64   `json:"security_grade,omitempty" jsonschema:"1 to 5"`
	StaticWatts   float64 `json:"static_watts_per_cpu,omitempty" jsonschema:"power of an idle core"`
	ActiveWatts   float64 `json:"active_watts_per_cpu,omitempty" jsonschema:"further power of a busy core"`
	Performance   int64   `json:"performance,omitempty" jsonschema:"1000 is the reference machine"`
	// Prices in fen per hour by specification.
	Prices map[string]int64  `json:"prices,omitempty" jsonschema:"fen per hour by specification; what is not named is not offered"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Inventory starts a center's inventory with what is declared.
func (d Declared) Inventory(center string) *adapterv1.Inventory {
	inv := &adapterv1.Inventory{AiCenterId: center, Name: d.Name, Region: d.Region, Longitude: d.Longitude, Latitude: d.Latitude, SecurityGrade: d.SecurityGrade,
		StaticMilliwattsPerCpu: milli(d.StaticWatts), ActiveMilliwattsPerCpu: milli(d.ActiveWatts), Performance: d.Performance, Labels: d.Labels}
	for spec, price := range d.Prices {
		inv.Offers = append(inv.Offers, &adapterv1.SpecOffer{ResourceSpecId: spec, Price: price})
	}
	return inv
}

func milli(watts float64) int64 { return int64(watts*1000 + .5) }
