//go:build !race

package jq

const slowdown = 1
