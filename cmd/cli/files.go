package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/fault"
)

// addFileCommands adds a command for each file that the modules declare:
// backbone ap payment-file for ap/payment-runs/{run_id}/file.
func addFileCommands(root *cobra.Command, files map[string]module.File) {
	for _, path := range slices.Sorted(maps.Keys(files)) {
		name, _, _ := strings.Cut(path, "/")
		moduleGroup(root, name).AddCommand(fileCommand(path, files[path]))
	}
}

// fileRequest is the command line of a file's command.
type fileRequest struct {
	path        string
	file        module.File
	legalEntity string
	out         string // "-": standard output
}

// savedFile is what the command reports with --json.
type savedFile struct {
	File   string `json:"file"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}

func fileCommand(path string, f module.File) *cobra.Command {
	r := &fileRequest{path: path, file: f}
	use := f.Command
	for _, p := range f.Params {
		use += " " + strings.ToUpper(p.Name)
	}
	group, _, _ := strings.Cut(path, "/")
	cmd := &cobra.Command{
		Use: use, Short: firstSentence(f.Description),
		Long: f.Description + "\n\nThe file is written with access for its owner only, and an existing file is not overwritten. What\n" +
			"personal data it shows is recorded in the access log.",
		Example: "  backbone " + group + " " + f.Command + " " + f.Example + " --legal-entity DEMF",
		Args:    cobra.ExactArgs(len(f.Params)),
	}
	legalEntityFlag(cmd, &r.legalEntity, "code of the legal entity (required; environment BACKBONE_LEGAL_ENTITY)")
	cmd.Flags().StringVarP(&r.out, "output", "o", "", "the file to write; - is standard output (default the name that the server proposes)")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error { return s.saveFile(ctx, r, args) })
}

// saveFile downloads a file and writes it.
func (s *session) saveFile(ctx context.Context, r *fileRequest, args []string) error {
	if r.legalEntity == "" {
		return exitError{2, fault.New(fault.Invalid, "request.parameter_missing", "no legal entity; set BACKBONE_LEGAL_ENTITY or --legal-entity")}
	}
	query := url.Values{"legal_entity": {r.legalEntity}}
	for i, p := range r.file.Params {
		query.Set(p.Name, args[i])
	}
	f, err := s.ModuleFile(ctx, r.path, query)
	if err != nil {
		return err
	}
	if r.out == "-" {
		_, err := s.out.Write(f.Content)
		return err
	}
	name := r.out
	if name == "" {
		if name = f.Name; name == "" || strings.ContainsAny(name, `/\:`) || strings.HasPrefix(name, ".") {
			return fault.New(fault.Invalid, "file.name_missing", "the server proposes no name for the file; name one with --output")
		}
	}
	if err := writeNewFile(name, f.Content); err != nil {
		return err
	}
	if s.json {
		return printJSON(s.out, savedFile{File: name, Bytes: len(f.Content), SHA256: f.SHA256})
	}
	_, err = fmt.Fprintf(s.out, "%s: %d bytes, SHA-256 %s\n", name, len(f.Content), f.SHA256)
	return err
}

// writeNewFile writes a file that does not exist yet, or no file. Fault: file.exists.
func writeNewFile(name string, content []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fault.New(fault.Conflict, "file.exists", "the file is there already; name another one with --output, or remove it")
	}
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}
