package money

// ISO4217 shows the table in its order to tests.
func ISO4217() []Currency {
	out := make([]Currency, 0, len(iso4217))
	for _, row := range iso4217 {
		out = append(out, currencies[row.code])
	}
	return out
}
