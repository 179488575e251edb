//go:build race

package e2e

// raceDetector builds the binary under test as the tests are built.
const raceDetector = true
