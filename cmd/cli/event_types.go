package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

func typesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "types",
		Short: "Keep event types in files, check and register them",
		Long: "A version of an event type lives in a file, <type>.v<version>.json: the body of its\n" +
			"registration. Registered versions never change and are never deleted; a type that is\n" +
			"not wanted any more is deprecated.",
	}
	cmd.AddCommand(checkTypesCommand(), pushTypesCommand(), pullTypesCommand(), changeTypeCommand(false), changeTypeCommand(true), typeHistoryCommand())
	return cmd
}

func checkTypesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Find what registering would find, and register nothing",
		Long: "Each file is compared with the version before it: the registered one, or that of another\n" +
			"FILE. Exit code 1 when one would be refused.",
		Example: "  backbone types check types/equipment.machine.serviced.v2.json\n" +
			"  backbone types check types/*.json --json",
		Args: cobra.MinimumNArgs(1),
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return CheckTypes(cmd.Context(), options(), args) }
	return cmd
}

func pushTypesCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "push DIR",
		Short: "Register the files of a directory that the server does not have",
		Long: "The plan is printed first. If a file would be refused, nothing is registered and the exit\n" +
			"code is 1. Pushing again changes nothing.",
		Example: "  backbone types push types --dry-run\n" +
			"  backbone types push types --server https://backbone.example",
		Args: cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the plan only")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return PushTypes(cmd.Context(), options(), args[0], dryRun)
	}
	return cmd
}

func pullTypesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pull DIR",
		Short: "Write all registered versions into a directory",
		Long: "Types of built-in modules are left out, they come with the program. Files are written\n" +
			"the same way every time; those that the server has nothing for stay.",
		Example: "  backbone types pull types",
		Args:    cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return PullTypes(cmd.Context(), options(), args[0])
	}
	return cmd
}

// changeTypeCommand is deprecate, or reactivate.
func changeTypeCommand(reactivate bool) *cobra.Command {
	c := TypeChange{Reactivate: reactivate}
	cmd := &cobra.Command{
		Use:   "deprecate TYPE",
		Short: "Take no more events of a type, or of one version",
		Long:  "Its events stay as they are and readable. Types of built-in modules cannot be deprecated.",
		Example: "  backbone types deprecate equipment.machine.serviced --reason \"replaced by equipment.service.done\"\n" +
			"  backbone types deprecate equipment.machine.serviced --schema-version 1",
		Args: cobra.ExactArgs(1),
	}
	if reactivate {
		cmd.Use, cmd.Short, cmd.Long = "reactivate TYPE", "Take events of a type, or of one version, again", ""
		cmd.Example = "  backbone types reactivate equipment.machine.serviced"
	}
	options := clientFlags(cmd)
	cmd.Flags().Uint32Var(&c.SchemaVersion, "schema-version", 0, "only this version (default: all)")
	cmd.Flags().StringVar(&c.Reason, "reason", "", "why; no personal data")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.Type = args[0]
		return ChangeType(cmd.Context(), options(), c)
	}
	return cmd
}

func typeHistoryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "history [TYPE]",
		Short:   "Show who registered, deprecated and reactivated what of a type, or of all",
		Example: "  backbone types history equipment.machine.serviced\n  backbone types history --json",
		Args:    cobra.MaximumNArgs(1),
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := "" // of all
		if len(args) > 0 {
			name = args[0]
		}
		return TypeHistory(cmd.Context(), options(), name)
	}
	return cmd
}

// plannedType is a file and what becomes of it.
type plannedType struct {
	File string `json:"file"`
	httpclient.EventTypeCheck

	version version
}

// token is what registering the version needs to look at few events only.
func (p *plannedType) token() string {
	if p.Proof == nil {
		return ""
	}
	return p.Proof.Proof
}

// The verdicts of the server that the plan looks at.
const (
	verdictNewVersion = "new_version"
	verdictUnchanged  = "unchanged"
	verdictRefused    = "refused"
)

// planTypes asks the server about each file, in order. Where the version before is a
// file that is not registered yet, the two are compared here: that is what the
// server will find once it has the first.
func planTypes(ctx context.Context, o ClientOptions, client *httpclient.Client, files []typeFile) ([]plannedType, error) {
	out := make([]plannedType, 0, len(files))
	for _, f := range files {
		found, err := checkType(ctx, o, client, f.version)
		if err != nil {
			return nil, inFile(f.path, err)
		}
		p := plannedType{File: f.path, EventTypeCheck: found, version: f.version}
		if len(out) > 0 && found.Verdict != verdictUnchanged {
			before := out[len(out)-1]
			if before.Type == p.Type && before.Verdict != verdictUnchanged && before.SchemaVersion > p.ComparedWith {
				p.follow(before)
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// checkType asks until all stored events of earlier versions were looked at, or one of
// them cannot be read in this version.
func checkType(ctx context.Context, o ClientOptions, client *httpclient.Client, v version) (httpclient.EventTypeCheck, error) {
	found, err := client.CheckEventType(ctx, v, "")
	if err != nil || found.Proof == nil || found.Proof.Complete {
		return found, err
	}
	show, title, total := newProgress(o.Err, o.Terminal), fmt.Sprintf("%s v%d", v.Type, v.SchemaVersion), found.Proof.Partitions
	for found.Proof != nil && !found.Proof.Failed && !found.Proof.Complete {
		// The last part is told when it is over: a bar that is full is gone.
		show.report(title, min(found.Proof.Done, total-1), total)
		if found, err = client.CheckEventType(ctx, v, found.Proof.NextCursor); err != nil {
			return found, err
		}
	}
	show.report(title, total, total)
	return found, nil
}

// inFile says which file a fault is about.
func inFile(path string, err error) error {
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	placed := *f
	placed.Detail = path + ": " + f.Detail
	return &placed
}

// follow replaces the comparison with the newest registered version by the one with
// the file before.
func (p *plannedType) follow(before plannedType) {
	older, newer := before.version.Registration(), p.version.Registration()
	c := eventtype.Compare(&older, &newer)
	ofComparison := func(v fault.Violation) bool {
		if v.Code == "event_type.upcaster_from_unknown" {
			return slices.ContainsFunc(p.version.Upcasters, func(u eventtype.Upcaster) bool { return u.FromVersion == before.SchemaVersion })
		}
		return v.Code == "event_type.default_invalid" || slices.ContainsFunc(p.Differences, func(d eventtype.Difference) bool {
			return !d.Met && v.Field == d.Pointer && v.Code == "event_type."+string(d.Kind)
		})
	}
	p.Findings = slices.DeleteFunc(p.Findings, ofComparison)
	if f, ok := fault.As(c.Refusal(p.Type)); ok {
		p.Findings = append(p.Findings, f.Violations...)
	}
	p.ComparedWith, p.Compatible, p.Truncated = c.Older, &c.Compatible, c.Truncated
	p.Differences = append([]eventtype.Difference{}, c.Differences...)
	p.Verdict = verdictNewVersion
	if len(p.Findings) > 0 {
		p.Verdict = verdictRefused
	}
	if before.Verdict == verdictRefused {
		p.Verdict = verdictRefused
		p.Findings = append(p.Findings, fault.Violation{Field: "/schema_version", Code: "types.version_before_refused", Detail: "the version before it is refused; correct that one"})
	}
}

// refusedTypes is the fault for a plan with files that would be refused; nil
// otherwise.
func refusedTypes(plan []plannedType) error {
	refused := 0
	for _, p := range plan {
		if p.Verdict == verdictRefused {
			refused++
		}
	}
	if refused == 0 {
		return nil
	}
	return fault.New(fault.FailedPrecondition, "types.refused", "%d of %d versions would be refused, so nothing is registered; correct what is listed", refused, len(plan))
}

// CheckTypes prints what registering files would find. Fault types.refused.
func CheckTypes(ctx context.Context, o ClientOptions, paths []string) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	files, err := readTypeFiles(paths)
	if err != nil {
		return err
	}
	plan, err := planTypes(ctx, o, client, files)
	if err != nil {
		return err
	}
	if o.JSON {
		err = o.json(map[string]any{"checks": plan})
	} else {
		err = printTypePlan(o.Out, plan)
	}
	if err != nil {
		return err
	}
	return refusedTypes(plan)
}

// PushTypes registers the files of a directory that the server does not have, after
// printing what it will do. If it would refuse one, nothing is registered: fault
// types.refused.
func PushTypes(ctx context.Context, o ClientOptions, directory string, dryRun bool) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	files, err := readTypeDirectory(directory)
	if err != nil {
		return err
	}
	plan, err := planTypes(ctx, o, client, files)
	if err != nil {
		return err
	}
	if o.JSON {
		err = o.json(map[string]any{"plan": plan, "dry_run": dryRun})
	} else {
		err = printTypePlan(o.Out, plan)
	}
	if err != nil {
		return err
	}
	if err := refusedTypes(plan); err != nil || dryRun {
		return err
	}
	registered := 0
	for _, p := range plan {
		if p.Verdict == verdictUnchanged {
			continue
		}
		proof := p.token()
		if proof == "" && len(p.version.Upcasters) > 0 {
			// The version before was registered just now.
			found, err := checkType(ctx, o, client, p.version)
			if err != nil {
				return inFile(p.File, err)
			}
			proof = (&plannedType{EventTypeCheck: found}).token()
		}
		if _, err := client.RegisterEventType(ctx, p.version, proof, "types-push-"+typeFileName(p.Type, p.SchemaVersion)); err != nil {
			return inFile(fmt.Sprintf("%s, after %d were registered", p.File, registered), err)
		}
		registered++
	}
	if !o.JSON {
		fmt.Fprintf(o.Out, "Registered %d, unchanged %d.\n", registered, len(plan)-registered)
	}
	return nil
}

func printTypePlan(out io.Writer, plan []plannedType) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TYPE\tVERSION\tVERDICT\tCOMPARED WITH\tEARLIER DATA FIT")
	for _, p := range plan {
		with, fit := "-", "-"
		if p.ComparedWith > 0 {
			with = fmt.Sprintf("version %d", p.ComparedWith)
		}
		if p.Compatible != nil {
			fit = map[bool]string{true: "yes", false: "not shown"}[*p.Compatible]
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\n", p.Type, p.SchemaVersion, p.Verdict, with, fit)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, p := range plan {
		listed := map[string]bool{}
		for _, d := range p.Differences {
			mark := "ok"
			if !d.Met {
				mark = "REFUSED"
			}
			guess := ""
			if d.Guess {
				guess = " (a guess)"
			}
			fmt.Fprintf(out, "  %s v%d  %s  %s%s %s: %s\n", p.Type, p.SchemaVersion, mark, d.Kind, guess, d.Pointer, d.Detail)
			listed["event_type."+string(d.Kind)+d.Pointer] = true
		}
		if f := p.Proof; f != nil {
			fmt.Fprintf(out, "  %s v%d  %s of earlier versions looked at, %s; %d cannot be read in this version\n",
				p.Type, p.SchemaVersion, counted(f.Events, "stored event"), counted(f.Examples, "example"), len(f.Failures)+f.Elsewhere)
		}
		for _, v := range p.Findings {
			if !listed[v.Code+v.Field] {
				fmt.Fprintf(out, "  %s v%d  REFUSED  %s %s: %s\n", p.Type, p.SchemaVersion, v.Code, v.Field, v.Detail)
			}
		}
	}
	return nil
}

// PullTypes writes every version that is not of a built-in module into a directory.
// A file that holds just that already is left alone, and so is one that the server
// has nothing for.
func PullTypes(ctx context.Context, o ClientOptions, directory string) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	all, err := client.EventTypes(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return err
	}
	report := struct {
		Written   []string `json:"written"`
		Unchanged int      `json:"unchanged"`
		OnlyHere  []string `json:"only_here"` // files of versions that the server does not have
	}{Written: []string{}, OnlyHere: []string{}}
	known := map[string]bool{}
	for _, r := range all {
		if strings.HasPrefix(r.RegisteredBy, "module:") {
			continue
		}
		name := typeFileName(r.Type, r.SchemaVersion)
		known[name] = true
		written, err := writeTypeFile(directory, r)
		switch {
		case err != nil:
			return err
		case written:
			report.Written = append(report.Written, name)
		default:
			report.Unchanged++
		}
	}
	files, err := filepath.Glob(filepath.Join(escapeGlob(directory), "*.json"))
	if err != nil {
		return err
	}
	for _, path := range files {
		if name := filepath.Base(path); !known[name] {
			report.OnlyHere = append(report.OnlyHere, name)
		}
	}
	if o.JSON {
		return o.json(report)
	}
	for _, name := range report.Written {
		fmt.Fprintln(o.Out, "written  ", name)
	}
	for _, name := range report.OnlyHere {
		fmt.Fprintln(o.Out, "only here", name)
	}
	fmt.Fprintf(o.Out, "Written %d, unchanged %d.\n", len(report.Written), report.Unchanged)
	return nil
}

// TypeChange is what `backbone types deprecate` and `reactivate` ask for.
type TypeChange struct {
	Type          string
	SchemaVersion uint32 // 0: all
	Reason        string
	Reactivate    bool
}

// ChangeType deprecates or reactivates a type and prints its versions.
func ChangeType(ctx context.Context, o ClientOptions, c TypeChange) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	change := client.DeprecateEventType
	if c.Reactivate {
		change = client.ReactivateEventType
	}
	versions, err := change(ctx, c.Type, c.SchemaVersion, c.Reason)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(map[string]any{"type": c.Type, "versions": versions})
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TYPE\tVERSION\tSTATE\tREGISTERED\tBY")
	for _, v := range versions {
		state := "deprecated"
		if v.Active {
			state = "active"
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\n", v.Type, v.SchemaVersion, state, v.RegisteredAt.UTC().Format(minute), v.RegisteredBy)
	}
	return table.Flush()
}

// TypeHistory prints who changed what of a type, of all types when the name is empty.
func TypeHistory(ctx context.Context, o ClientOptions, name string) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	changes, err := client.EventTypeHistory(ctx, name)
	if err != nil {
		return err
	}
	if o.JSON {
		answer := map[string]any{"changes": changes}
		if name != "" {
			answer["type"] = name
		}
		return o.json(answer)
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NUMBER\tAT\tTYPE\tVERSION\tWHAT\tBY\tDOCUMENT\tREASON")
	for _, c := range changes {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%.12s\t%s\n", c.Number, c.At.UTC().Format(minute), c.Type, c.SchemaVersion,
			strings.TrimPrefix(c.Event, "registry.type."), c.Actor, c.DocumentSHA256, cmp.Or(c.Reason, "-"))
	}
	return table.Flush()
}

// Versions of event types live in files, one each: <type>.v<version>.json.

const largestTypeFile = 4 << 20

// typeFile is a version in a file.
type typeFile struct {
	path string
	version
}

// version is a version of a type on its way to the registry.
type version = httpclient.NewEventType

func typeFileName(name string, schemaVersion uint32) string {
	return fmt.Sprintf("%s.v%d.json", name, schemaVersion)
}

// encodeType writes a version the one way that files of types are written: members in
// a fixed order, those of schema and examples as they were given.
func encodeType(t version) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(t)
	return b.Bytes(), err
}

// readTypeFile reads a version. Fault types.file_invalid.
func readTypeFile(path string) (typeFile, error) {
	invalid := func(why string) error {
		return fault.New(fault.Invalid, "types.file_invalid", "%s %s; see the registration of event types in the API for its members", path, why).WithField(path)
	}
	f, err := os.Open(path)
	if err != nil {
		return typeFile{}, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, largestTypeFile+1))
	if err != nil {
		return typeFile{}, err
	}
	if len(text) > largestTypeFile {
		return typeFile{}, invalid("is larger than 4 MiB")
	}
	out := typeFile{path: path}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&out.version); err != nil {
		return typeFile{}, invalid("is not the registration of an event type (" + strings.TrimPrefix(oneLine(err), "json: ") + ")")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return typeFile{}, invalid("holds more than one JSON value")
	}
	return out, nil
}

// readTypeFiles reads versions in the order in which they can be registered. Each may
// be given once. Fault types.version_repeated.
func readTypeFiles(paths []string) ([]typeFile, error) {
	out := make([]typeFile, len(paths))
	for i, path := range paths {
		var err error
		if out[i], err = readTypeFile(path); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, func(a, b typeFile) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), int(a.SchemaVersion)-int(b.SchemaVersion))
	})
	for i := 1; i < len(out); i++ {
		if a, b := out[i-1], out[i]; a.Type == b.Type && a.SchemaVersion == b.SchemaVersion {
			return nil, fault.New(fault.Invalid, "types.version_repeated", "%s and %s hold the same version; keep one of them", a.path, b.path)
		}
	}
	return out, nil
}

// readTypeDirectory reads all files of types in a directory. Each has the name of
// what it holds, so that nobody edits another version than meant. Faults
// types.directory_empty, types.file_misnamed.
func readTypeDirectory(directory string) ([]typeFile, error) {
	paths, err := filepath.Glob(filepath.Join(escapeGlob(directory), "*.json"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		if _, err := os.ReadDir(directory); err != nil {
			return nil, err
		}
		return nil, fault.New(fault.Invalid, "types.directory_empty", "%s holds no <type>.v<version>.json; pull the registry into it, or name another directory", directory)
	}
	files, err := readTypeFiles(paths)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if want := typeFileName(f.Type, f.SchemaVersion); filepath.Base(f.path) != want {
			return nil, fault.New(fault.Invalid, "types.file_misnamed", "%s holds what belongs into %s; rename it", f.path, want)
		}
	}
	return files, nil
}

var globEscapes = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

func escapeGlob(path string) string { return globEscapes.Replace(path) }

// writeTypeFile writes a version unless the file holds just that already. A reader
// never sees half of it.
func writeTypeFile(directory string, r eventtype.Registration) (written bool, err error) {
	if !eventtype.ValidName(r.Type) {
		return false, fault.New(fault.Internal, "client.answer_unreadable", "the server lists a type whose name is none; check the server's address and version")
	}
	text, err := encodeType(httpclient.NewEventTypeOf(r))
	if err != nil {
		return false, err
	}
	path := filepath.Join(directory, typeFileName(r.Type, r.SchemaVersion))
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, text) {
		return false, nil
	}
	f, err := os.CreateTemp(directory, ".type-*")
	if err != nil {
		return false, err
	}
	_, err = f.Write(text)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err == nil, err
}
