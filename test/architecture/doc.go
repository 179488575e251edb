// Package architecture holds the tests that keep the house in order: what may
// import what, which top-level folders there are, and a few habits that a reader
// relies on everywhere. They read the sources with the standard library only, so
// they also work while packages are missing or do not compile.
package architecture
