//go:build slow

package shredding_test

const saltCount = 1_000_000
