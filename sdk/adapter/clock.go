package adapter

import (
	"fmt"
	"time"
)

// Clock is how far a center's clock is from the driver's, as far as an operator
// should know. It is not safe for concurrent use.
type Clock struct{ told time.Duration }

// Notice takes a measurement and returns what Inventory.notice should say, "" for
// clocks that agree. Small changes do not change what it says.
func (c *Clock) Notice(ahead time.Duration) string {
	if (ahead - c.told).Abs() >= 45*time.Second {
		c.told = ahead.Round(time.Minute)
	}
	switch {
	case c.told > 0:
		return fmt.Sprintf("the center's clock is ahead of the driver's by %s; times of its runs are the center's: set both clocks", c.told)
	case c.told < 0:
		return fmt.Sprintf("the center's clock is behind the driver's by %s; times of its runs are the center's: set both clocks", -c.told)
	}
	return ""
}
