//go:build race

package jq

// slowdown is what the race detector costs.
const slowdown = 7
