package place

import (
	"slices"
	"strconv"
	"strings"
)

// Filter keeps candidates out that cannot run a replica.
type Filter struct {
	ID  string // at most 32 characters, stable
	Doc string // one line
	// Check says why s cannot run a, "" if it can. The job's owner reads it: it
	// names the value and the limit. It MUST be a function of its arguments and
	// MUST NOT depend on load, which changes during a plan: the engine asks
	// once per ask and candidate. Free capacity is checked by the engine itself.
	Check func(a *Ask, s *Site) string
	// Reads is what of the ask Check reads, so that asks that agree in it share
	// the answers; 0: anything.
	Reads Reads
}

// Filters returns the built-in filters in the order their reasons are listed.
// The check of free capacity, "capacity", comes after them.
func Filters() []Filter { return slices.Clone(filters) }

var filters = []Filter{
	{"status", "the candidate takes new work", checkStatus, ReadsNothing},
	{"pinned", "manual policy: a person named the candidates", checkPinned, ReadsPinned},
	{"excluded", "the caller ruled the candidate out, for example after a failure there", checkExcluded, ReadsExcluded},
	{"region", "the candidate lies in a wanted region", checkRegion, ReadsRegions},
	{"security", "the security grade is high enough", checkSecurity, ReadsGrade},
	{"attributes", "required attributes match", checkAttributes, ReadsRequire},
	{"expression", "the task's expression over tags and facts is met", checkExpression, ReadsExpression},
	{"spec", "the specification is on offer", checkSpec, ReadsSpec},
	{"image", "the image can start there", checkImage, ReadsImage},
	{"price", "the price is within the owner's limit", checkPrice, ReadsSpec | ReadsPrice},
	{"data", "data that must not move is there", checkData, ReadsData},
	{"qos", "targets of quality that the task requires are met", checkQoS, ReadsQoS | ReadsOrigin | ReadsRun | ReadsData | ReadsKind},
}

// capacityFilter is the ID under which missing capacity is reported.
const capacityFilter = "capacity"

func checkStatus(_ *Ask, s *Site) string {
	var text string
	switch s.Status {
	case Available:
		return ""
	case Draining:
		text = "is draining and takes no new work"
	case Unavailable:
		text = "is not available"
	case Unknown, "":
		text = "has an unknown status"
	default:
		text = "has status " + strconv.Quote(string(s.Status))
	}
	if s.StatusReason != "" {
		text += ": " + s.StatusReason
	}
	return text
}

func checkPinned(a *Ask, s *Site) string {
	if a.Task.Pinned == nil || slices.Contains(a.Task.Pinned, s.ID) {
		return ""
	}
	return "is not one of those named: " + list(a.Task.Pinned)
}

func checkExcluded(a *Ask, s *Site) string {
	why, out := a.Task.Excluded[s.ID]
	switch {
	case !out:
		return ""
	case why == "":
		return "is excluded"
	}
	return "is excluded: " + why
}

func checkRegion(a *Ask, s *Site) string {
	if a.Task.Regions == nil || slices.Contains(a.Task.Regions, s.Region) {
		return ""
	}
	where := s.Region
	if where == "" {
		where = "unknown"
	}
	return "lies in region " + where + ", wanted " + list(a.Task.Regions)
}

func checkSecurity(a *Ask, s *Site) string {
	if s.SecurityGrade >= a.Task.MinGrade {
		return ""
	}
	return "has security grade " + strconv.FormatInt(s.SecurityGrade, 10) +
		", at least " + strconv.FormatInt(a.Task.MinGrade, 10) + " wanted"
}

func checkAttributes(a *Ask, s *Site) string {
	if len(a.Task.Require) == 0 {
		return ""
	}
	var buf [8]string
	var bad []string
	for _, k := range sortedKeys(buf[:0], a.Task.Require) {
		want := a.Task.Require[k]
		if got, ok := s.Attributes[k]; !ok {
			bad = append(bad, "has no "+k+", wanted "+want)
		} else if got != want {
			bad = append(bad, "has "+k+" "+got+", wanted "+want)
		}
	}
	return strings.Join(bad, "; ")
}

func checkExpression(a *Ask, s *Site) string {
	if a.unmet == nil {
		return ""
	}
	return a.unmet[s.index]
}

func checkSpec(a *Ask, s *Site) string {
	if a.Task.Spec == "" || a.Offer(s) != nil {
		return ""
	}
	return "does not offer specification " + a.Task.Spec
}

func checkImage(a *Ask, s *Site) string {
	if a.Task.Image == "" || s.AnyImage || slices.Contains(s.Images, a.Task.Image) {
		return ""
	}
	return "does not have image " + a.Task.Image
}

func checkPrice(a *Ask, s *Site) string {
	limit := a.Task.MaxPrice
	if !limit.Known {
		return ""
	}
	o := a.Offer(s)
	switch {
	case o == nil:
		return "" // the spec filter says so
	case !o.PriceFenPerHour.Known:
		return "states no price, at most " + Text("fen/h", limit) + " wanted"
	case o.PriceFenPerHour.Value > limit.Value:
		return "costs " + Text("fen/h", o.PriceFenPerHour) + ", at most " + Text("fen/h", limit) + " wanted"
	}
	return ""
}

func checkData(a *Ask, s *Site) string {
	var bad []string
	for _, n := range a.Task.Data {
		if have, _ := n.held(s); n.Stay && have < n.Bytes {
			bad = append(bad, "holds "+Text("B", Known(have))+" of dataset "+n.Dataset+
				", which must not move ("+Text("B", Known(n.Bytes))+")")
		}
	}
	return strings.Join(bad, "; ")
}

func checkQoS(a *Ask, s *Site) string {
	if !a.Task.QoS.Required {
		return ""
	}
	var bad []string
	for _, t := range s.targets(a) {
		word, missed := "at most", t.actual.Value > t.limit.Value
		if t.better == Higher {
			word, missed = "at least", t.actual.Value < t.limit.Value
		}
		switch {
		case !t.limit.Known:
		case !t.actual.Known:
			bad = append(bad, "its "+t.name+" is not known, "+word+" "+Text(t.unit, t.limit)+" required")
		case missed:
			bad = append(bad, "has "+t.name+" "+Text(t.unit, t.actual)+", "+word+" "+Text(t.unit, t.limit)+" required")
		}
	}
	return strings.Join(bad, "; ")
}

// list writes names the way a sentence does, at most four of them.
func list(names []string) string {
	if len(names) == 0 {
		return "(none)"
	}
	sorted := slices.Sorted(slices.Values(names))
	if len(sorted) > 4 {
		return strings.Join(sorted[:4], ", ") + " and " + strconv.Itoa(len(sorted)-4) + " more"
	}
	return strings.Join(sorted, ", ")
}
