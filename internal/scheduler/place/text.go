package place

import (
	"strconv"
	"strings"
)

// Text writes a fact of the given unit for people: Text("fen/h", Known(1250))
// is "12.50 CNY/h". Units it does not know follow the number as they are.
func Text(unit string, f Fact) string {
	if !f.Known {
		return "unknown"
	}
	v := f.Value
	switch unit {
	case "":
		return strconv.FormatInt(v, 10)
	case "fen/h":
		return scaled(v, 2, true) + " CNY/h"
	case "fen":
		return scaled(v, 2, true) + " CNY"
	case "milli":
		return scaled(v, 3, false)
	case "bp":
		return scaled(v, 2, false) + " %"
	case "permille":
		return scaled(v, 1, false) + " %"
	case "ppm":
		return scaled(v, 4, false) + " %"
	case "us":
		return scaled(v, 3, false) + " ms"
	case "ms":
		return scaled(v, 3, false) + " s"
	case "mJ":
		if v >= 1e9 {
			return scaled(v/1000, 3, false) + " kJ"
		}
		return scaled(v, 3, false) + " J"
	case "jobs":
		if v == 1 {
			return "1 job"
		}
	case "m":
		return scaled(v, 3, false) + " km"
	case "kbit/s":
		return scaled(v, 3, false) + " Mbit/s"
	case "mg":
		return scaled(v, 3, false) + " g CO2"
	case "B":
		return bytes(v)
	}
	return strconv.FormatInt(v, 10) + " " + unit
}

// Amount writes an amount of a named resource: Amount("cpu", 1500) is
// "1.5 cpu", Amount("memory", 1<<30) is "1 GiB memory".
func Amount(resource string, v int64) string { return quantity(resource, v) + " " + resource }

func quantity(resource string, v int64) string {
	switch resource {
	case "cpu":
		return scaled(v, 3, false)
	case "memory", "storage":
		return bytes(v)
	}
	return strconv.FormatInt(v, 10)
}

// scaled writes v / 10^digits exactly; keep keeps trailing zeros.
func scaled(v int64, digits int, keep bool) string {
	sign, u := "", uint64(v)
	if v < 0 {
		sign, u = "-", -u
	}
	s := strconv.FormatUint(u, 10)
	if len(s) <= digits {
		s = strings.Repeat("0", digits+1-len(s)) + s
	}
	whole, part := s[:len(s)-digits], s[len(s)-digits:]
	if !keep {
		part = strings.TrimRight(part, "0")
	}
	if part == "" {
		return sign + whole
	}
	return sign + whole + "." + part
}

var binaryUnits = [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// bytes writes v in the largest unit of which there is at least one, cut to
// two decimals.
func bytes(v int64) string {
	sign, u := "", uint64(v)
	if v < 0 {
		sign, u = "-", -u
	}
	i := 0
	for i < len(binaryUnits)-1 && u>>(10*(i+1)) > 0 {
		i++
	}
	whole := u >> (10 * i)
	rest := u - whole<<(10*i)
	hundredths := rest
	if i > 0 {
		hundredths = (rest >> (10 * (i - 1))) * 100 >> 10
	}
	return sign + scaled(int64(whole*100+hundredths), 2, false) + " " + binaryUnits[i]
}
