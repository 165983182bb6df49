package sandbox_test

func helperGateway([]string) int { return 0 }
func probe([]string) int         { return 0 }
