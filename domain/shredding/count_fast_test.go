//go:build !slow

package shredding_test

// saltCount is how many values are sealed in search of a repetition.
const saltCount = 100_000
