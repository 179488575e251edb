package testkit

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// atEnd has what closes the fixtures that several tests of the package share.
var atEnd struct {
	mu        sync.Mutex
	isRunning bool // by Run
	closers   []func() error
}

// Run runs the tests of a package for its TestMain, and then what they gave to AtEnd, the last first.
func Run(m *testing.M) (exitCode int) {
	atEnd.isRunning = true
	exitCode = m.Run()
	for i := len(atEnd.closers) - 1; i >= 0; i-- {
		if err := atEnd.closers[i](); err != nil {
			fmt.Println("FAIL: closing what the tests share:", err)
			exitCode = 1
		}
	}
	return exitCode
}

// AtEnd calls a function once all tests of the package have ended. It reports false, and does not, if
// the package's TestMain does not call Run.
func AtEnd(closer func() error) bool {
	atEnd.mu.Lock()
	defer atEnd.mu.Unlock()
	if atEnd.isRunning {
		atEnd.closers = append(atEnd.closers, closer)
	}
	return atEnd.isRunning
}

// shared are the databases of SharedDatabase by template.
var shared = struct {
	mu        sync.Mutex
	databases map[string]string
}{databases: map[string]string{}}

// SharedDatabase is Database for tests that see their own rows only, such as those of a partition
// that no other test has: it makes one database for all tests of the package that name the template.
// The package's TestMain calls Run.
func SharedDatabase(t testing.TB, migrate func(ctx context.Context, superuserDSN string) error, templateName string) (superuserDSN string) {
	t.Helper()
	server := Server(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if dsn, ok := shared.databases[templateName]; ok {
		return dsn
	}
	dsn, drop, err := CreateDatabase(t.Context(), server, migrate, templateName)
	if err != nil {
		t.Fatalf("testkit: %v", err)
	}
	if !AtEnd(drop) {
		t.Cleanup(func() { _ = drop() })
		t.Fatalf("testkit: TestMain of this package has to call testkit.Run")
	}
	shared.databases[templateName] = dsn
	return dsn
}
