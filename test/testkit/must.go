package testkit

// Must returns the value of a constructor and panics on its error, for fixtures whose
// settings are known to be valid.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
