// Package architecture holds the rules of the repository as tests: what may import what, which
// library belongs to which package, which top-level folders there are, how large a file and a
// store object may be, and which habits a reader may rely on. The rules parse the sources
// without type-checking them, so that they also work while packages do not compile.
package architecture
