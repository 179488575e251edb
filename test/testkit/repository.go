package testkit

import (
	"os"
	"path/filepath"
	"testing"
)

// RepoRoot is the folder of the repository: the nearest one above the working
// directory that holds a go.mod.
func RepoRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("testkit: working directory: %v", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("testkit: no go.mod above the working directory; run tests inside the repository")
		}
		dir = parent
	}
}

// SharedData is the path of real-world data outside the repository, in ../shared/data, and is never copied into it. Where it is absent the test is
// skipped, by the name of the data.
func SharedData(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(RepoRoot(t), "..", "shared", "data", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("shared data %s is not on this machine", name)
	}
	return path
}
