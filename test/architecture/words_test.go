package architecture

import (
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// plainWords are words that the sources do not use, with the plain ones to write instead.
// They are pronouns and adverbs without an actor, and metaphors for which the field has a
// term. A word that is right in other contexts is not listed.
var plainWords = map[string]string{
	"somebody":    "another session, the caller, the node, the reader",
	"nobody":      "no session, no caller, no node; unassigned",
	"nobodys":     "unassigned",
	"anybody":     "any caller, any session",
	"whoever":     "the caller that, the session that",
	"anothers":    "remote, of another holder",
	"anew":        "again from scratch; recompute",
	"meanwhile":   "while ...; in that time",
	"refold":      "recompute",
	"refolded":    "recomputed",
	"serviceless": "unavailable",
	"unhurried":   "with long timeouts",
	"atelier":     "a fixture named for its content",
	"bureau":      "a fixture named for its content",
}

// wordExceptions are the words that a folder or file may use; nil: all.
var wordExceptions = map[string][]string{
	"adapters/embeddedpg/":            {"nobody"}, // a user of the operating system
	"docs/errors/commands.md":         {"nobody"}, // the same
	"application/streams/module.go":   {"anew"},   // descriptions of event types, which are registered
	"test/architecture/words_test.go": nil,        // lists the words
}

// wordBoundary separates the words of an identifier.
var wordBoundary = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// listedWords finds the words of plainWords in a line, also as a part of an identifier.
func listedWords(line string) (found []string) {
	words := strings.FieldsFunc(wordBoundary.ReplaceAllString(line, "$1 $2"), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	for _, word := range words {
		if _, listed := plainWords[strings.ToLower(word)]; listed {
			found = append(found, strings.ToLower(word))
		}
	}
	return found
}

// mayUse reports whether a file is an exception for a word.
func mayUse(path, word string) bool {
	for place, words := range wordExceptions {
		if strings.HasPrefix(path, place) && (words == nil || slices.Contains(words, word)) {
			return true
		}
	}
	return false
}

// writtenText returns the lines of a file that the rule is about, by number: comments and
// identifiers of Go, and the texts of its product code; Markdown without quoted code; SQL. The
// texts of tests are data.
func writtenText(s source) map[int]string {
	out := map[int]string{}
	if s.isGo() {
		positions, file := s.parse()
		if file == nil {
			return nil
		}
		for _, group := range file.Comments {
			for _, comment := range group.List {
				first := positions.Position(comment.Pos()).Line
				for i, line := range strings.Split(comment.Text, "\n") {
					out[first+i] += " " + line
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				out[positions.Position(n.Pos()).Line] += " " + n.Name
			case *ast.BasicLit:
				if n.Kind == token.STRING && !s.isTest() {
					text, _ := strconv.Unquote(n.Value)
					out[positions.Position(n.Pos()).Line] += " " + text
				}
			}
			return true
		})
		return out
	}
	markdown, fenced := strings.HasSuffix(s.path, ".md"), false
	for i, line := range strings.Split(string(s.content), "\n") {
		if markdown && strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if markdown && (fenced || strings.HasPrefix(line, "    ")) {
			continue
		}
		if markdown {
			line = quotedCode.ReplaceAllString(line, "")
		}
		out[i+1] = line
	}
	return out
}

// quotedCode is code within a line of Markdown.
var quotedCode = regexp.MustCompile("`[^`]*`")

// TestPlainWords keeps listed words out of comments, identifiers, product texts, SQL and
// documents, so that a sentence names who acts and a name is the field's word.
func TestPlainWords(t *testing.T) {
	t.Parallel()
	var findings []string
	for _, s := range readFiles(t, ".go", ".sql", ".md") {
		if s.generated {
			continue
		}
		text := writtenText(s)
		for _, n := range slices.Sorted(maps.Keys(text)) {
			for _, word := range listedWords(text[n]) {
				if !mayUse(s.path, word) {
					findings = append(findings, violation(s.path, n, "%s: write %s", word, plainWords[word]))
				}
			}
		}
	}
	report(t, findings, "words that are not plain")
}

// TestListedWords checks the rule itself.
func TestListedWords(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"nobody", "anew", "whoever"}, listedWords("// Nobody: foldAnew(x), WHOEVER_asks"))
	require.Empty(t, listedWords("renewal and manewuver; newSomebodyish"))
	require.True(t, mayUse("adapters/embeddedpg/owner.go", "nobody"))
	require.False(t, mayUse("adapters/embeddedpg/owner.go", "anew"))
	code := source{path: "a/b.go", content: []byte("package b\n\n// Somebody\nvar foldAnew = `nobody`\n")}
	require.Equal(t, map[int]string{1: " b", 3: " // Somebody", 4: " foldAnew nobody"}, writtenText(code))
	code.path = "a/b_test.go"
	require.Equal(t, map[int]string{1: " b", 3: " // Somebody", 4: " foldAnew"}, writtenText(code))
	page := source{path: "a.md", content: []byte("see `nobody`\n```\nwhoever\n```\n    anew")}
	require.Equal(t, map[int]string{1: "see "}, writtenText(page))
}
