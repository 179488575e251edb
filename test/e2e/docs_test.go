package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Placeholders of the README for the address, the data folder and the binary of a test.
const (
	readmeServer = "http://127.0.0.1:8080"
	readmeData   = "dev-data"
	readmeBinary = "bin/backbone"
)

// docsIndex links every page in the order in which their commands run.
const docsIndex = "docs/README.md"

// otherRepository is the page whose commands run in another repository.
const otherRepository = "docs/write-a-module.md"

// queryRole is the role that runs the queries of a page; backbone_app runs the others.
var queryRole = map[string]string{"docs/fan-out.md": "backbone_outbox_reader"}

var (
	shellBlock  = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$")
	sqlBlock    = regexp.MustCompile("(?ms)^ *```sql\n(.*?)^ *```$")
	fencedBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inlineCode  = regexp.MustCompile("`[^`\n]*`")
	docsLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	codePath    = regexp.MustCompile("`((?:adapters|application|cmd|configs|domain|modules|ports|sql|test)/[\\w./-]+)`")
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(repository(t, name))
	require.NoError(t, err)
	return string(text)
}

// links are the targets of a document's links to files of the repository, with their
// anchors.
func links(t *testing.T, name string) []string {
	t.Helper()
	text := inlineCode.ReplaceAllString(fencedBlock.ReplaceAllString(document(t, name), ""), "")
	var targets []string
	for _, match := range docsLink.FindAllStringSubmatch(text, -1) {
		file, anchor, _ := strings.Cut(match[1], "#")
		if strings.Contains(match[1], "://") {
			continue
		}
		if file == "" {
			file = path.Base(name)
		}
		targets = append(targets, path.Join(path.Dir(name), file)+"#"+anchor)
	}
	return targets
}

// mediaTypes look like paths of the repository.
var mediaTypes = []string{"application/json", "application/octet-stream"}

// TestDocumentLinks checks that each link of a document leads to a file and a heading, that
// each path of the repository that it names exists, and that the index leads to each page.
func TestDocumentLinks(t *testing.T) {
	t.Parallel()
	documents := []string{"README.md", "CHANGELOG.md"}
	require.NoError(t, fs.WalkDir(os.DirFS(repository(t)), "docs", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".md" {
			documents = append(documents, name)
		}
		return err
	}))
	linked := map[string]bool{docsIndex: true}
	for _, name := range documents {
		for _, named := range codePath.FindAllStringSubmatch(document(t, name), -1) {
			if _, err := os.Stat(repository(t, named[1])); name != otherRepository && !slices.Contains(mediaTypes, named[1]) {
				assert.NoError(t, err, "%s names %s", name, named[1])
			}
		}
		for _, target := range links(t, name) {
			file, anchor, _ := strings.Cut(target, "#")
			if path.Base(name) == "README.md" {
				linked[file] = true
			}
			if _, err := os.Stat(repository(t, file)); !assert.NoError(t, err, "%s links to %s", name, target) || anchor == "" {
				continue
			}
			var anchors []string
			for _, h := range heading.FindAllStringSubmatch(document(t, file), -1) {
				anchors = append(anchors, strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
			}
			assert.Contains(t, anchors, anchor, "%s links to %s", name, target)
		}
	}
	for _, name := range documents {
		assert.True(t, linked[name] || !strings.HasPrefix(name, "docs/"), "no index leads to %s", name)
	}
}

// TestDocuments runs every shell and SQL block of the README and of the pages, unchanged
// and in the order of the index, in a folder that looks like a checkout after make run.
func TestDocuments(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"curl", "timeout"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed on this machine", tool)
		}
	}
	books := copyOfBooks(t)
	configurePostgres(t, books, "fsync = 'on'") // or `backbone doctor` would find it
	d := startOn(t, books, recoveryStart, "--sample")
	_, err := d.awaitOutput(d.stdout, hintsEnd, endTime)
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "bin"), 0o750))
	require.NoError(t, os.Symlink(d.dataDir, filepath.Join(folder, readmeData)))
	require.NoError(t, os.Symlink(repository(t, "test"), filepath.Join(folder, "test")))
	endless(t, folder, readmeBinary, program(t), "tail *")
	curl, err := exec.LookPath("curl")
	require.NoError(t, err)
	endless(t, folder, "bin/curl", curl, "-sSN *")

	database, err := pgx.Connect(t.Context(), superuser(t, d.dataDir))
	require.NoError(t, err)
	t.Cleanup(func() { _ = database.Close(context.Background()) })

	pages := []string{"README.md"}
	for _, target := range links(t, docsIndex) {
		if page, _, _ := strings.Cut(target, "#"); page != otherRepository && !slices.Contains(pages, page) {
			pages = append(pages, page)
		}
	}
	preface, ran := "", 0
	for _, page := range pages {
		blocks := shellBlock.FindAllStringSubmatch(document(t, page), -1)
		if page == "README.md" {
			preface, blocks = blocks[0][1], blocks[1:]
		}
		if len(blocks) == 0 {
			continue
		}
		script := preface
		for _, block := range blocks {
			script += fmt.Sprintf("echo; echo '### %s:'\ncat <<'### end'\n%s### end\n%s", page, block[1], block[1])
			ran++
		}
		t.Run(page, func(t *testing.T) {
			shell := exec.Command("sh", "-e", "-c", strings.ReplaceAll(script, readmeServer, d.HTTP))
			shell.Dir, shell.Env = folder, cleanEnvironment()
			out, err := shell.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.NotContains(t, string(out), `"type":"/problems/`, "a request was refused")
			for _, query := range sqlBlock.FindAllStringSubmatch(document(t, page), -1) {
				_, err := database.Exec(t.Context(), "SET ROLE "+cmp.Or(queryRole[page], "backbone_app"))
				require.NoError(t, err)
				_, err = database.Exec(t.Context(), strings.ReplaceAll(query[1], ":'legal_entity'", "'DEMF'"))
				require.NoError(t, err, "%s", query[1])
			}
		})
	}
	require.Greater(t, ran, 40, "the documents were read")
	requireBooksAgree(t, d, "DEMF")
}

// endless puts a command into the folder that is interrupted after a moment if its arguments
// match, since the reader of a feed ends it with Ctrl-C.
func endless(t *testing.T, folder, name, command, arguments string) {
	t.Helper()
	script := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in %s) timeout -s INT --preserve-status 2 '%s' \"$@\" || test $? -eq 130; exit ;; esac\nexec '%s' \"$@\"\n",
		strings.ReplaceAll(arguments, " ", `\ `), command, command)
	require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(script), 0o700)) //nolint:gosec // it is a program
}

// requireReadmeOutput compares the output in the README with the printed one, without parts
// that differ between runs: ids, numbers given in a race, times, ports, folders, the width of
// columns, and the set-up, which copied books do not have.
func requireReadmeOutput(t *testing.T, d *dev, printed string) {
	t.Helper()
	_, want, found := strings.Cut(document(t, "README.md"), "<!-- output: make run -->\n```\n")
	require.True(t, found, "the README marks the output of make run")
	want, _, _ = strings.Cut(want, "```")
	printed = strings.NewReplacer(d.HTTP, readmeServer, d.dataDir, readmeData, program(t), readmeBinary).Replace(printed)
	for _, r := range []struct{ pattern, replacement string }{
		{`[0-7][0-9A-HJKMNP-TV-Z]{25}`, "ULID"}, {`bbk_\S+`, "TOKEN"}, {`V-\d{6}`, "V-N"}, {`sequence \d+`, "sequence N"},
		{`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z`, "TIME"}, {`(?m)(PostgreSQL is up on 127\.0\.0\.1:)\d+$`, "${1}PORT"},
		{`(?s)Setting up .*?\n(Ready: )`, "$1"}, {` +`, " "},
	} {
		pattern := regexp.MustCompile(r.pattern)
		want, printed = pattern.ReplaceAllString(want, r.replacement), pattern.ReplaceAllString(printed, r.replacement)
	}
	require.Equal(t, want, printed)
}
