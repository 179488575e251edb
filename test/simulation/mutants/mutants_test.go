package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMutants_TextsOccurOnce keeps mutants from growing out of date: the text that each of them
// replaces occurs once in its file.
func TestMutants_TextsOccurOnce(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range mutants {
		require.False(t, names[m.name], "two mutants are called %q", m.name)
		names[m.name] = true
		require.NotEmpty(t, m.defect)
		require.NotEmpty(t, m.from)
		for _, c := range m.changes {
			text, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(c.file)))
			require.NoError(t, err)
			require.Equal(t, 1, bytes.Count(text, []byte(c.old)), "mutant %q replaces a text of %s that must occur once:\n%s", m.name, c.file, c.old)
			require.NotEqual(t, c.old, c.new)
		}
	}
}
