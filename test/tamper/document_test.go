package tamper

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// findsEverything marks the lines of that table that promise a finding for each change of a row. They
// name the columns whose edits are none.
const findsEverything = "every edit, deleted row and invented row is a finding"

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
// the form "| word: tables | what it means |", with the verdicts. A line that promises everything must
// hold for the rows of its tables, and name each column without a proof.
func TestDocument_HasEveryTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/verify.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## What is judged\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	want, got, meanings := map[string]string{}, map[string]string{}, map[string]string{}
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
			got[m[1]], meanings[m[1]] = strings.TrimSpace(word), cells[2]
		}
	}
	for i := range verdicts {
		if v := &verdicts[i]; strings.Contains(meanings[v.name], findsEverything) {
			v.requireEverythingFound(t, meanings[v.name])
		}
	}
	require.Equal(t, want, got, "docs/verify.md, What is judged: every table under the word for its verdict")
}

// requireEverythingFound demands a proof for deleted and invented rows, and for each column that a line
// of docs/verify.md does not name.
func (v *table) requireEverythingFound(t *testing.T, line string) {
	t.Helper()
	require.Equal(t, proof, v.deleted.effect, "docs/verify.md says that a deleted row of %s is a finding", v.name)
	require.Equal(t, proof, v.invented.effect, "docs/verify.md says that an invented row of %s is a finding", v.name)
	for _, c := range v.columns {
		if c.effect == proof {
			continue
		}
		for _, name := range strings.Fields(c.columns) {
			require.Contains(t, line, "`"+name+"`", "docs/verify.md says that an edit of %s.%s is a finding", v.name, name)
		}
	}
}
