package inventory

import "yunhe.dev/yunhe/internal/core"

// CheckAttributes checks attributes against the schema of a type.
func CheckAttributes(typ string, attributes map[string]any) error {
	var c core.Check
	typeOf(typ).check(&c, "attributes", attributes)
	return c.Err()
}
