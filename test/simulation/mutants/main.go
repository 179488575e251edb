// Command mutants shows that the simulation finds defects. It breaks the product in one place at a
// time, runs seeds until one fails, and prints which seed found each mutant by which rule.
//
//	go run ./test/simulation/mutants [-seeds N] [name...]
//
// Names select the mutants that contain one of them. Nothing of the working tree is changed: the
// broken file replaces the original one by an overlay of the build.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	log.SetFlags(0)
	seeds := flag.Int("seeds", 1000, "how many seeds to run at most for each mutant")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *seeds, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

// finding is what running the seeds on a mutant gave.
type finding struct {
	mutant
	seed int    // the first that fails; 0: none does
	rule string // that it violates
	took time.Duration
}

func run(ctx context.Context, seeds int, names []string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // a temporary folder
	chosen := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool {
		return len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(m.name, n) })
	})
	var found []finding
	missed := 0
	for i, m := range chosen {
		log.Printf("mutant %d of %d: %s", i+1, len(chosen), m.name)
		f, err := try(ctx, strings.TrimSpace(string(root)), folder, seeds, m)
		if ctx.Err() != nil {
			break // the table has what was found until now
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if f.seed == 0 {
			missed++
		}
		log.Printf("  seed %d: %s", f.seed, f.rule)
		found = append(found, f)
	}
	if err := printTable(found, seeds); err != nil {
		return err
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d mutants were not found", missed, len(found))
	}
	return nil
}

func printTable(found []finding, seeds int) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "MUTANT\tSEED\tRULE\tSECONDS") // Flush returns the error
	for _, f := range found {
		seed := strconv.Itoa(f.seed)
		if f.seed == 0 {
			seed, f.rule = "none of "+strconv.Itoa(seeds), "-"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%.0f\n", f.name, seed, f.rule, f.took.Seconds())
	}
	return w.Flush()
}

// try builds the simulation with a mutant and runs it.
func try(ctx context.Context, root, folder string, seeds int, m mutant) (finding, error) {
	began := time.Now()
	overlay, err := m.writeOverlay(root, folder)
	if err != nil {
		return finding{}, err
	}
	binary := filepath.Join(folder, "simulation.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, "./test/simulation")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return finding{}, fmt.Errorf("build: %w\n%s", err, out)
	}
	test := exec.CommandContext(ctx, binary, "-test.run", "^TestSeeds$", "-test.timeout", "60m", "-seeds", strconv.Itoa(seeds), "-until-failure")
	test.Dir = filepath.Join(root, "test", "simulation")
	out, failed := test.CombinedOutput()
	if ctx.Err() != nil {
		return finding{}, ctx.Err()
	}
	f := finding{mutant: m}
	if failed != nil {
		if !errors.As(failed, new(*exec.ExitError)) {
			return finding{}, failed
		}
		f.seed, f.rule = readFailure(out)
	}
	f.took = time.Since(began)
	return f, nil
}

var (
	begun    = regexp.MustCompile(`(?m)^seed (\d+)$`)
	violated = regexp.MustCompile(`(?m)^seed \d+ violates: (.*)$`)
	panicked = regexp.MustCompile(`(?m)^(?:panic|fatal error): (.*)$`)
)

// readFailure reads which seed failed, and why, from the output of a failed run.
func readFailure(out []byte) (seed int, rule string) {
	if all := begun.FindAllSubmatch(out, -1); len(all) > 0 {
		seed, _ = strconv.Atoi(string(all[len(all)-1][1])) // digits
	}
	for _, pattern := range []*regexp.Regexp{violated, panicked} {
		if match := pattern.FindSubmatch(out); match != nil {
			return seed, string(match[1])
		}
	}
	return seed, "the run failed"
}

// writeOverlay writes the broken files, and the overlay that puts them in place of the original ones.
func (m mutant) writeOverlay(root, folder string) (string, error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for i, c := range m.changes {
		original := filepath.Join(root, filepath.FromSlash(c.file))
		if overlay.Replace[original] == "" {
			overlay.Replace[original] = filepath.Join(folder, strconv.Itoa(i)+".go")
			if err := copyFile(original, overlay.Replace[original]); err != nil {
				return "", err
			}
		}
		broken := overlay.Replace[original]
		text, err := os.ReadFile(broken)
		if err != nil {
			return "", err
		}
		if n := bytes.Count(text, []byte(c.old)); n != 1 {
			return "", fmt.Errorf("%s has the text %d times, not once:\n%s", c.file, n, c.old)
		}
		if err := os.WriteFile(broken, bytes.Replace(text, []byte(c.old), []byte(c.new), 1), 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	name := filepath.Join(folder, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}
