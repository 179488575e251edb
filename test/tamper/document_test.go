package tamper

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documented are the words for effects in the table "What is judged" of docs/verify.md.
var documented = map[effect]string{proof: "found", compared: "compared", healed: "healed", harmless: "harmless"}

// strictest is the effect under which a table is documented: a proof if anything of it has one,
// else a comparison, and so on.
func (v *table) strictest(other effect) effect {
	has := map[effect]bool{v.deleted.effect: true, v.invented.effect: true, other: true}
	for _, c := range v.columns {
		has[c.effect] = true
	}
	for _, e := range []effect{proof, compared, healed} {
		if has[e] {
			return e
		}
	}
	return harmless
}

// TestDocument_HasEveryTable compares the table "What is judged" of docs/verify.md, with lines of
// the form "| word: tables | what it means |", with the verdicts.
func TestDocument_HasEveryTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/verify.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## What is judged\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	want, got := map[string]string{}, map[string]string{}
	effects := map[string]effect{}
	for i := range verdicts {
		v := &verdicts[i]
		effects[v.name] = v.strictest(effects[v.name])
		want[v.name] = documented[effects[v.name]]
	}
	name := regexp.MustCompile("`([a-z_]+\\.[a-z_]+)`")
	for _, line := range strings.Split(section, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		word, tables, isRow := strings.Cut(cells[1], ": ")
		if !isRow {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(tables, -1) {
			require.NotContains(t, got, m[1], "docs/verify.md names the table twice")
			got[m[1]] = strings.TrimSpace(word)
		}
	}
	require.Equal(t, want, got, "docs/verify.md, What is judged: every table under the word for its verdict")
}
