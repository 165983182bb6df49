package topology

// Differences names what differs.
func Differences(c Change) []string { return differences(&c.Before.Record, &c.After.Record) }

// SplitCard and CheckVertex are for the fuzzers.
var SplitCard, CardID = splitCard, cardID
