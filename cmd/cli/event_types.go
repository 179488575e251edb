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
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

func typesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "types",
		Short: "Keep event types in files, check and register them",
		Long: "A version of an event type lives in a file, <type>.v<version>.json: the body of its\n" +
			"registration. A registered version is never deleted and gets nothing but optional members;\n" +
			"a type that is not wanted any more is deprecated.",
	}
	cmd.AddCommand(checkTypesCommand(), pushTypesCommand(), pullTypesCommand(), deprecateTypeCommand(), reactivateTypeCommand(),
		confirmTypeCommand(), rejectTypeCommand(), typeHistoryCommand())
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
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		files, err := readTypeFiles(args)
		if err != nil {
			return err
		}
		plan, err := s.planTypes(ctx, files)
		if err != nil {
			return err
		}
		if err := s.show(map[string]any{"checks": plan}, func(p *page) { p.typePlan(plan) }); err != nil {
			return err
		}
		return refusedTypes(plan)
	})
}

func pushTypesCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "push DIR",
		Short: "Register the new versions and amendments in the files of a directory",
		Long: "The plan is printed first. If a file would be refused, nothing is registered and the exit\n" +
			"code is 1. Pushing again changes nothing.",
		Example: "  backbone types push types --dry-run\n" +
			"  backbone types push types --server https://backbone.example",
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the plan only")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error { return s.pushTypes(ctx, args[0], dryRun) })
}

// pushTypes prints a plan and then registers the files of a directory that the server does not
// have. If the server would refuse one of them, it registers none: fault types.refused.
func (s *session) pushTypes(ctx context.Context, directory string, dryRun bool) error {
	files, err := readTypeDirectory(directory)
	if err != nil {
		return err
	}
	plan, err := s.planTypes(ctx, files)
	if err != nil {
		return err
	}
	if err := s.show(map[string]any{"plan": plan, "dry_run": dryRun}, func(p *page) { p.typePlan(plan) }); err != nil {
		return err
	}
	if err := refusedTypes(plan); err != nil || dryRun {
		return err
	}
	registered, amended, proposed, waiting := 0, 0, []string{}, []string{}
	changed := map[string]bool{} // types
	for _, p := range plan {
		if p.Verdict == verdictUnchanged {
			continue
		}
		if slices.Contains(proposed, p.Type) { // this version builds on the one that is proposed
			waiting = append(waiting, p.File)
			continue
		}
		proof := p.Proof.Proof
		if proof == "" && len(p.document.Upcasters) > 0 || proof != "" && changed[p.Type] {
			// The previous version was registered or amended just now.
			found, err := s.checkType(ctx, p.document)
			if err != nil {
				return faultInFile(p.File, err)
			}
			proof = found.Proof.Proof
		}
		body, err := p.document.request(proof)
		if err != nil {
			return err
		}
		key := "types-push-" + typeFileName(p.document.Type, p.document.SchemaVersion)
		stored, err := s.RegisterEventType(ctx, client.RegisterEventTypeParams{IdempotencyKey: key}, client.EventTypeRegistration{}, client.WithBody(body))
		if err != nil {
			return faultInFile(fmt.Sprintf("%s, after %d were registered", p.File, registered), err)
		}
		changed[p.Type] = true
		if registered++; stored.Amended {
			amended++
		}
		if stored.EventType.Proposal.Event != "" {
			proposed = append(proposed, p.Type)
		}
	}
	if s.json {
		return nil
	}
	return printPage(s.out, func(p *page) {
		p.line("Registered %d, unchanged %d.", registered, len(plan)-registered-len(waiting))
		if amended > 0 {
			p.line("Of these %d got optional members and kept their version.", amended)
		}
		for _, name := range proposed {
			p.line("Proposed only, until another person confirms it: backbone types confirm %s", name)
		}
		for _, file := range waiting {
			p.line("Not registered, because it follows a proposed version: %s; push again after the confirmation", file)
		}
	})
}

// plannedType is a file and the server's verdict about it.
type plannedType struct {
	File string `json:"file"`
	client.EventTypeCheck

	document typeDocument
}

// The verdicts of the server that the plan distinguishes.
const (
	verdictNewVersion = "new_version"
	verdictUnchanged  = "unchanged"
	verdictRefused    = "refused"
)

// planTypes asks the server to check each file, in order. If the previous version is a file that
// is not registered yet, planTypes compares the two itself, as the server will after it has
// registered the first.
func (s *session) planTypes(ctx context.Context, files []typeFile) ([]plannedType, error) {
	out := make([]plannedType, 0, len(files))
	for _, f := range files {
		found, err := s.checkType(ctx, f.typeDocument)
		if err != nil {
			return nil, faultInFile(f.path, err)
		}
		p := plannedType{File: f.path, EventTypeCheck: found, document: f.typeDocument}
		if len(out) > 0 && found.Verdict != verdictUnchanged {
			before := out[len(out)-1]
			if before.Type == p.Type && before.Verdict != verdictUnchanged && before.SchemaVersion > p.ComparedWith {
				p.compareWith(before)
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// checkType repeats the check until the server has read all stored events of earlier versions,
// or has found one that cannot be read in this version.
func (s *session) checkType(ctx context.Context, t typeDocument) (client.EventTypeCheck, error) {
	ask := func(cursor string) (client.EventTypeCheck, error) {
		body, err := t.request(cursor)
		if err != nil {
			return client.EventTypeCheck{}, err
		}
		return s.CheckEventType(ctx, client.EventTypeRegistration{}, client.WithBody(body))
	}
	found, err := ask("")
	if err != nil || !hasProof(found) || found.Proof.Complete {
		return found, err
	}
	show, title, total := newProgress(s.err, s.terminal), fmt.Sprintf("%s v%d", t.Type, t.SchemaVersion), found.Proof.Partitions
	for hasProof(found) && !found.Proof.Failed && !found.Proof.Complete {
		// The last part is reported only at its end, since a full bar ends its line.
		show.report(title, min(found.Proof.PartitionsDone, total-1), total)
		if found, err = ask(found.Proof.NextCursor); err != nil {
			return found, err
		}
	}
	show.report(title, total, total)
	return found, nil
}

// hasProof reports whether stored events of earlier versions have to be read in the
// version that was checked.
func hasProof(c client.EventTypeCheck) bool { return !reflect.ValueOf(c.Proof).IsZero() }

// faultInFile adds the name of a file to a fault.
func faultInFile(path string, err error) error {
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	placed := *f
	placed.Detail = path + ": " + f.Detail
	return &placed
}

// compareWith replaces the server's comparison, with the newest registered version, by the one
// with the previous file.
func (p *plannedType) compareWith(before plannedType) {
	older, newer := before.document.registration(), p.document.registration()
	c := eventtype.Compare(&older, &newer)
	ofComparison := func(v client.Violation) bool {
		if v.Code == "event_type.upcaster_from_unknown" {
			return slices.ContainsFunc(p.document.Upcasters, func(u eventtype.Upcaster) bool { return u.FromVersion == before.document.SchemaVersion })
		}
		return v.Code == "event_type.default_invalid" || slices.ContainsFunc(p.Differences, func(d client.EventTypeDifference) bool {
			return !d.Met && v.Field == d.Pointer && v.Code == "event_type."+d.Kind
		})
	}
	p.Findings = slices.DeleteFunc(p.Findings, ofComparison)
	if f, ok := fault.As(c.Refusal(p.Type)); ok {
		for _, v := range f.Violations {
			p.Findings = append(p.Findings, client.Violation{Field: v.Field, Code: v.Code, Detail: v.Detail, Expected: v.Expected, Got: v.Got})
		}
	}
	p.ComparedWith, p.Compatible, p.Truncated = int(c.Older), &c.Compatible, c.Truncated
	p.Differences = []client.EventTypeDifference{}
	for _, d := range c.Differences {
		p.Differences = append(p.Differences, client.EventTypeDifference{
			Kind: string(d.Kind), Pointer: d.Pointer, Demands: string(d.Demand), Met: d.Met, Guess: d.Guess, Detail: d.Detail,
		})
	}
	p.Verdict = verdictNewVersion
	if len(p.Findings) > 0 {
		p.Verdict = verdictRefused
	}
	if before.Verdict == verdictRefused {
		p.Verdict = verdictRefused
		p.Findings = append(p.Findings, client.Violation{Field: "/schema_version", Code: "types.version_before_refused", Detail: "the version before it is refused; correct that one"})
	}
}

// refusedTypes returns a fault if the server would refuse a file of the plan.
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

// typePlan writes the verdict for each file, and why the server would refuse a version.
func (p *page) typePlan(plan []plannedType) {
	p.row("TYPE", "VERSION", "VERDICT", "COMPARED WITH", "EARLIER DATA FIT")
	for _, t := range plan {
		with, fit := "-", "-"
		if t.ComparedWith > 0 {
			with = fmt.Sprintf("version %d", t.ComparedWith)
		}
		if t.Compatible != nil {
			fit = map[bool]string{true: "yes", false: "not shown"}[*t.Compatible]
		}
		p.row(t.Type, t.SchemaVersion, t.Verdict, with, fit)
	}
	for _, t := range plan {
		listed := map[string]bool{}
		for _, d := range t.Differences {
			mark := "ok"
			if !d.Met {
				mark = "REFUSED"
			}
			guess := ""
			if d.Guess {
				guess = " (a guess)"
			}
			p.line("  %s v%d  %s  %s%s %s: %s", t.Type, t.SchemaVersion, mark, d.Kind, guess, d.Pointer, d.Detail)
			listed["event_type."+d.Kind+d.Pointer] = true
		}
		if f := t.Proof; hasProof(t.EventTypeCheck) {
			p.line("  %s v%d  %s of earlier versions looked at, %s; %d cannot be read in this version",
				t.Type, t.SchemaVersion, counted(f.EventsScanned, "stored event"), counted(f.Examples, "example"), len(f.Failures)+f.FailuresElsewhere)
		}
		for _, v := range t.Findings {
			if !listed[v.Code+v.Field] {
				p.line("  %s v%d  REFUSED  %s %s: %s", t.Type, t.SchemaVersion, v.Code, v.Field, v.Detail)
			}
		}
	}
}

func pullTypesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pull DIR",
		Short: "Write all registered and proposed versions into a directory",
		Long: "Types of built-in modules are left out, they come with the program. Files are written\n" +
			"the same way every time; those that the server has nothing for stay.",
		Example: "  backbone types pull types",
		Args:    cobra.ExactArgs(1),
	}
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error { return s.pullTypes(ctx, args[0]) })
}

// pullTypes writes every registered version into a directory, except those of built-in modules.
// It changes neither a file with the same content nor one that the server does not know.
func (s *session) pullTypes(ctx context.Context, directory string) error {
	if _, err := s.ListEventTypes(ctx, s.keep()); err != nil {
		return err
	}
	var registry struct {
		Types []struct {
			eventtype.Registration
			Status string `json:"status"`
		} `json:"event_types"`
	}
	if err := json.Unmarshal(s.document, &registry); err != nil {
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
	for _, r := range registry.Types {
		if strings.HasPrefix(r.RegisteredBy, "module:") || r.Status == "rejected" {
			continue
		}
		name := typeFileName(r.Type, r.SchemaVersion)
		known[name] = true
		written, err := writeTypeFile(directory, r.Registration)
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
	return s.show(report, func(p *page) {
		for _, name := range report.Written {
			p.line("written   %s", name)
		}
		for _, name := range report.OnlyHere {
			p.line("only here %s", name)
		}
		p.line("Written %d, unchanged %d.", len(report.Written), report.Unchanged)
	})
}

func deprecateTypeCommand() *cobra.Command {
	return changeTypeCommand(&cobra.Command{
		Use:   "deprecate TYPE",
		Short: "Propose to take no more events of a type, or of one version",
		Long: "Another person confirms it. Events stay as they are and readable. Types of built-in modules\n" +
			"cannot be deprecated.",
		Example: "  backbone types deprecate equipment.machine.serviced --reason \"replaced by equipment.service.done\"\n" +
			"  backbone types deprecate equipment.machine.serviced --schema-version 1",
	}, func(ctx context.Context, s *session, name string, body client.EventTypeChangeRequest) (client.EventTypeVersions, error) {
		return s.DeprecateEventType(ctx, name, body)
	})
}

func reactivateTypeCommand() *cobra.Command {
	return changeTypeCommand(&cobra.Command{
		Use:     "reactivate TYPE",
		Short:   "Propose to take events of a type, or of one version, again",
		Long:    "Another person confirms it.",
		Example: "  backbone types reactivate equipment.machine.serviced",
	}, func(ctx context.Context, s *session, name string, body client.EventTypeChangeRequest) (client.EventTypeVersions, error) {
		return s.ReactivateEventType(ctx, name, body)
	})
}

func confirmTypeCommand() *cobra.Command {
	var proof string
	cmd := changeTypeCommand(&cobra.Command{
		Use:   "confirm TYPE",
		Short: "Let what another person proposed about a type take effect",
		Long: "A version with upcasters, an amendment of open objects, a deprecation and a reactivation take\n" +
			"effect once a second person confirms them. Read first what is proposed: `backbone types\n" +
			"history TYPE` names it and the person, `backbone types pull DIR` writes a version.",
		Example: "  backbone types confirm equipment.machine.serviced --schema-version 2",
	}, func(ctx context.Context, s *session, name string, body client.EventTypeChangeRequest) (client.EventTypeVersions, error) {
		return s.ConfirmEventType(ctx, name, client.EventTypeConfirmation{SchemaVersion: body.SchemaVersion, Reason: body.Reason, Proof: proof})
	})
	cmd.Flags().StringVar(&proof, "proof", "", "of `backbone types check --json`, where there are too many events for one request")
	return cmd
}

func rejectTypeCommand() *cobra.Command {
	return changeTypeCommand(&cobra.Command{
		Use:     "reject TYPE",
		Short:   "Reject or withdraw what is proposed about a type",
		Long:    "The number of a rejected version is not used again.",
		Example: "  backbone types reject equipment.machine.serviced --schema-version 2 --reason \"rounds the wrong way\"",
	}, func(ctx context.Context, s *session, name string, body client.EventTypeChangeRequest) (client.EventTypeVersions, error) {
		return s.RejectEventType(ctx, name, body)
	})
}

// changeTypeCommand completes a command that changes a type, or one version of it.
func changeTypeCommand(cmd *cobra.Command, change func(context.Context, *session, string, client.EventTypeChangeRequest) (client.EventTypeVersions, error)) *cobra.Command {
	var schemaVersion uint32
	var reason string
	cmd.Args = cobra.ExactArgs(1)
	cmd.Flags().Uint32Var(&schemaVersion, "schema-version", 0, "only this version (default: all)")
	cmd.Flags().StringVar(&reason, "reason", "", "why; no personal data")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		body := client.EventTypeChangeRequest{Reason: reason}
		if schemaVersion != 0 {
			body.SchemaVersion = &schemaVersion
		}
		changed, err := change(ctx, s, args[0], body)
		if err != nil {
			return err
		}
		return s.show(map[string]any{"type": args[0], "versions": changed.Versions}, func(p *page) {
			p.row("TYPE", "VERSION", "STATE", "REGISTERED", "BY", "PROPOSED")
			waits := false
			for _, v := range changed.Versions {
				proposed := "-"
				if v.Proposal.Event != "" {
					waits = true
					proposed = strings.TrimPrefix(v.Proposal.Event, "registry.type.") + " by " + v.Proposal.Actor
				}
				p.row(v.Type, v.SchemaVersion, v.Status, v.RegisteredAt.UTC().Format(minuteLayout), v.RegisteredBy, proposed)
			}
			if waits {
				p.line("What is proposed takes effect once another person confirms it: backbone types confirm %s", args[0])
			}
		})
	})
}

func typeHistoryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "history [TYPE]",
		Short:   "Show who proposed, registered, amended, deprecated and reactivated what of a type, or of all",
		Example: "  backbone types history equipment.machine.serviced\n  backbone types history --json",
		Args:    cobra.MaximumNArgs(1),
	}
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		read := func() (client.EventTypeHistory, error) { return s.ListEventTypeChanges(ctx, s.keep()) }
		if len(args) > 0 {
			read = func() (client.EventTypeHistory, error) { return s.GetEventTypeHistory(ctx, args[0], s.keep()) }
		}
		history, err := read()
		if err != nil {
			return err
		}
		return s.print(func(p *page) {
			p.row("NUMBER", "AT", "TYPE", "VERSION", "WHAT", "BY", "DOCUMENT", "REASON")
			for _, c := range history.Changes {
				p.row(c.Number, c.At.UTC().Format(minuteLayout), c.Type, c.SchemaVersion, strings.TrimPrefix(c.Event, "registry.type."), c.Actor,
					fmt.Sprintf("%.12s", c.DocumentSha256), cmp.Or(c.Reason, "-"))
			}
		})
	})
}

// Versions of event types live in files, one each: <type>.v<version>.json.

const maxTypeFileBytes = 4 << 20

// typeFile is a version in a file.
type typeFile struct {
	path string
	typeDocument
}

// typeDocument is the content of a file: a registration, with its members in the order in which
// every file is written.
type typeDocument struct {
	Type               string                      `json:"type"`
	SchemaVersion      uint32                      `json:"schema_version"`
	Module             string                      `json:"module"`
	Description        string                      `json:"description,omitempty"`
	RetentionClass     eventtype.RetentionClass    `json:"retention_class,omitempty"`
	MinRetentionYears  int                         `json:"minimum_retention_years,omitempty"`
	DataSchema         json.RawMessage             `json:"data_schema"`
	RequiredDimensions []string                    `json:"required_dimensions,omitempty"`
	OptionalDimensions []string                    `json:"optional_dimensions,omitempty"`
	RequiredEntityRefs []eventtype.RequiredRef     `json:"required_entity_refs,omitempty"`
	PIIFields          []eventtype.PIIField        `json:"pii_fields,omitempty"`
	BusinessKeys       []eventtype.BusinessKeyRule `json:"business_keys,omitempty"`
	Upcasters          []eventtype.Upcaster        `json:"upcasters,omitempty"`
	Examples           []json.RawMessage           `json:"examples,omitempty"`
}

func newTypeDocument(r eventtype.Registration) typeDocument {
	return typeDocument{
		Type: r.Type, SchemaVersion: r.SchemaVersion, Module: r.Module, Description: r.Description, RetentionClass: r.RetentionClass,
		MinRetentionYears: r.MinRetentionYears, DataSchema: r.DataSchema, RequiredDimensions: r.RequiredDimensions,
		OptionalDimensions: r.OptionalDimensions, RequiredEntityRefs: r.RequiredEntityRefs, PIIFields: r.PIIFields,
		BusinessKeys: r.BusinessKeys, Examples: r.Examples, Upcasters: r.Upcasters,
	}
}

// registration converts the document for comparisons on this machine.
func (t typeDocument) registration() eventtype.Registration {
	return eventtype.Registration{
		Type: t.Type, SchemaVersion: t.SchemaVersion, Module: t.Module, Description: t.Description, RetentionClass: t.RetentionClass,
		MinRetentionYears: t.MinRetentionYears, DataSchema: t.DataSchema, RequiredDimensions: t.RequiredDimensions,
		OptionalDimensions: t.OptionalDimensions, RequiredEntityRefs: t.RequiredEntityRefs, PIIFields: t.PIIFields,
		BusinessKeys: t.BusinessKeys, Examples: t.Examples, Upcasters: t.Upcasters,
	}
}

// request converts the document to the server's form and adds the proof of an earlier check.
func (t typeDocument) request(proof string) (json.RawMessage, error) {
	return encodeType(struct {
		typeDocument
		Proof string `json:"proof,omitempty"`
	}{t, proof})
}

func typeFileName(name string, schemaVersion uint32) string {
	return fmt.Sprintf("%s.v%d.json", name, schemaVersion)
}

// encodeType encodes a version in the one form of type files: its members in a fixed order,
// those of the schema and the examples in the order of the source.
func encodeType(t any) ([]byte, error) {
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
	text, err := readLimited(path, nil, maxTypeFileBytes)
	if errors.Is(err, errTooLarge) {
		return typeFile{}, invalid("is larger than 4 MiB")
	}
	if err != nil {
		return typeFile{}, err
	}
	out := typeFile{path: path}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&out.typeDocument); err != nil {
		return typeFile{}, invalid("is not the registration of an event type (" + strings.TrimPrefix(oneLine(err), "json: ") + ")")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return typeFile{}, invalid("holds more than one JSON value")
	}
	return out, nil
}

// readTypeFiles reads versions and sorts them into the order of registration. Fault
// types.version_repeated if two files hold the same version.
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

// readTypeDirectory reads all type files of a directory. A file must have the name of the
// version that it holds, so that a person who opens it edits the intended version. Faults
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

// writeTypeFile writes a version atomically, unless the file has the same content already.
func writeTypeFile(directory string, r eventtype.Registration) (written bool, err error) {
	if !eventtype.ValidName(r.Type) {
		return false, fault.New(fault.Internal, "client.answer_unreadable", "the server lists a type whose name is none; check the server's address and version")
	}
	text, err := encodeType(newTypeDocument(r))
	if err != nil {
		return false, err
	}
	path := filepath.Join(directory, typeFileName(r.Type, r.SchemaVersion))
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, text) {
		return false, nil
	}
	if err := replaceFile(path, text); err != nil {
		return false, faultInFile(path, err)
	}
	return true, nil
}
