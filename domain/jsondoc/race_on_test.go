//go:build race

package jsondoc_test

const raceDetector = true
