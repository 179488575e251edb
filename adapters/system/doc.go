// Package system is the machine's clock and randomness, as implementations of
// ports.Clock and ports.IDSource. Tests use other ones.
package system
