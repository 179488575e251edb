package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules"
)

// parses tells what is wrong with a command line of this program: a command, a flag or an
// argument that it does not take, or one that is missing.
func parses(words []string) error {
	cmd, rest, err := newRoot(modules.BuiltIn()).Find(words)
	if err != nil {
		return err
	}
	if !cmd.Runnable() {
		return fmt.Errorf("%s does nothing by itself", cmd.CommandPath())
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return err
	}
	return cmd.ValidateFlagGroups()
}

var (
	// assignment is NAME=value before a command.
	assignment = regexp.MustCompile(`^[A-Z_]+=\S*$`)
	// continued is where a line goes on in the next one.
	continued = regexp.MustCompile(`\s*\\\n\s*`)
	// remark is what an example says behind a command.
	remark = regexp.MustCompile(`\S {2,}[^ ].*$`)
)

// split cuts a line of a shell into the commands between pipes and the like, and these
// into words. It knows as much of a shell as the documents use.
func split(line string) (commands [][]string) {
	var words []string
	word, in, quote := "", false, rune(0)
	next := func() {
		if in {
			words = append(words, word)
		}
		word, in = "", false
	}
	end := func() {
		next()
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '"' || r == '\'':
			quote, in = r, true
		case r == '#' && !in:
			end()
			return commands
		case r == ' ' || r == '\t':
			next()
		case r == '|' || r == ';' || r == '&' || r == '<' || r == '>':
			end()
		default:
			word, in = word+string(r), true
		}
	}
	end()
	return commands
}

// backboneCommands are the command lines of this program in a line of a shell.
func backboneCommands(line string) (out [][]string) {
	for _, words := range split(line) {
		for len(words) > 0 && assignment.MatchString(words[0]) {
			words = words[1:]
		}
		if len(words) > 0 && (words[0] == "backbone" || words[0] == "bin/backbone") {
			out = append(out, words[1:])
		}
	}
	return out
}

// exampleCommands are the command lines of this program that a command shows as examples.
func exampleCommands(c *cobra.Command) (out [][]string) {
	for line := range strings.Lines(continued.ReplaceAllString(c.Example, " ")) {
		line = strings.TrimSpace(line)
		if at := remark.FindStringIndex(line); at != nil {
			line = line[:at[0]+1]
		}
		out = append(out, backboneCommands(line)...)
	}
	return out
}

// TestExamples holds the examples of --help against the commands.
func TestExamples(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.Runnable() {
			assert.NotEmpty(t, c.Example, "%s --help shows no example", c.CommandPath())
		}
		assert.NotEmpty(t, c.Short, c.CommandPath())
		found := c.Example == ""
		for _, words := range exampleCommands(c) {
			assert.NoError(t, parses(words), "the example of %s: %q", c.CommandPath(), words)
			cmd, _, err := newRoot(modules.BuiltIn()).Find(words)
			assert.NoError(t, err)
			found = found || c.Parent() == nil || strings.HasPrefix(cmd.CommandPath()+" ", c.CommandPath()+" ")
		}
		assert.True(t, found, "no example of %s shows it", c.CommandPath())
	}
	walk(newRoot(modules.BuiltIn()))
}

var consoleBlock = regexp.MustCompile("(?ms)^ *```console\n(.*?)^ *```$")

// TestDocumentedCommands checks that commands which the documents show for other machines
// exist with their flags. What runs here is run as it stands in test/e2e.
func TestDocumentedCommands(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	files := []string{"README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := fs.Glob(root, pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	lines := 0
	for _, file := range files {
		text, err := fs.ReadFile(root, file)
		require.NoError(t, err)
		for _, block := range consoleBlock.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(continued.ReplaceAllString(block[1], " ")) {
				for _, words := range backboneCommands(strings.TrimPrefix(strings.TrimSpace(line), "$ ")) {
					lines++
					assert.NoError(t, parses(words), "%s: %s", file, line)
				}
			}
		}
	}
	require.Greater(t, lines, 8, "the documents were read")
}
