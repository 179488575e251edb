// Package scaffold writes a working business module into a repository of its own:
// declarations, planners, a policy, a read model on PostgreSQL, tests, and a main function
// that runs Backbone with it. What it writes is the package skeleton in this folder with
// its name replaced, so the compiler and the tests of this repository keep it working.
// `backbone new module` calls Write.
package scaffold

import (
	"embed"
	"errors"
	"fmt"
	"go/format"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

//go:embed skeleton
var files embed.FS

const (
	backbonePath = "github.com/erpbackbone/backbone"
	skeleton     = "skeleton"
	skeletonPath = backbonePath + "/cmd/scaffold/" + skeleton
)

// Options name the module and its folders.
type Options struct {
	Name     string // of the module: "asset"
	Path     string // import path of the new repository: "example.com/asset"
	Dir      string // folder of the new repository; Write creates it
	Checkout string // folder of a checkout of Backbone to build with; "" leaves the version to `go mod tidy`
}

var moduleName = regexp.MustCompile(`^[a-z][a-z0-9]{1,30}$`)

// taken are the names that a new module cannot have: Backbone's own modules and schemas,
// and the packages that the skeleton imports.
var taken = []string{"ap", "gl", "backbone", "keystore", "public", "streams", "erasure", "module", "modules", "event", "eventtype", "fault", "ports", "plugin", "postgres", "test", skeleton}

// Write writes the module and lists its files. Faults: scaffold.name_invalid,
// scaffold.folder_not_empty.
func Write(o Options) (written []string, err error) {
	if !moduleName.MatchString(o.Name) || token.IsKeyword(o.Name) || slices.Contains(taken, o.Name) {
		return nil, fault.New(fault.Invalid, "scaffold.name_invalid",
			"a module's name has 2 to 31 lower-case letters and digits, begins with a letter, and is neither a word of Go nor one of %s; choose another", strings.Join(taken, ", "))
	}
	if entries, err := os.ReadDir(o.Dir); err == nil && len(entries) > 0 {
		return nil, fault.New(fault.Conflict, "scaffold.folder_not_empty", "the folder %s holds files; choose another with --dir", o.Dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	write := func(name string, content []byte) error {
		target := filepath.Join(o.Dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		written = append(written, target)
		return os.WriteFile(target, content, 0o644) //nolint:gosec // source code
	}
	if err := write("go.mod", goMod(o)); err != nil {
		return nil, err
	}
	rename := strings.NewReplacer(skeletonPath, o.Path, skeleton, o.Name)
	err = fs.WalkDir(files, skeleton, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		content = []byte(rename.Replace(string(content)))
		if strings.HasSuffix(name, ".go") {
			if content, err = format.Source(content); err != nil { // the new names change the order of imports
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return write(rename.Replace(strings.TrimPrefix(name, skeleton+"/")), content)
	})
	return written, err
}

func goMod(o Options) []byte {
	version, _, _ := strings.Cut(strings.TrimPrefix(runtime.Version(), "go"), " ")
	text := fmt.Sprintf("module %s\n\ngo %s\n", o.Path, version)
	if o.Checkout != "" {
		text += fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", backbonePath, backbonePath, o.Checkout)
	}
	return []byte(text)
}
