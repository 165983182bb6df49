package topology

// Differences names what differs.
func Differences(c Change) []string { return differences(&c.Before.Record, &c.After.Record) }

// SplitCard and CardID are for the fuzzers.
var SplitCard, CardID = splitCard, cardID

// SetMaxEdits makes transactions small for a test.
func SetMaxEdits(s *Service, n int) { s.maxEdits = n }

// OnEdit is called before each transaction of the watch.
func OnEdit(s *Service, f func()) { s.onEdit = f }

// LinkValues are those of a layer, by link.
func LinkValues(l *layer) []float64 { return l.link }
