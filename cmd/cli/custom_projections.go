package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"
	yaml "go.yaml.in/yaml/v3"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

func createProjectionCommand() *cobra.Command {
	var dryRun, untried bool
	cmd := &cobra.Command{
		Use: "create FILE", Short: "Create a projection out of a filter, a key and a fold", Args: cobra.ExactArgs(1),
		Long: "FILE is in YAML or JSON. key and fold are programs in jq: the key makes a text of an event, the\n" +
			"fold the new state of that key out of {state, event}; null leaves the event or the row out.\n" +
			"It takes the role admin. With expected_version 0, or without it, there must be no projection of that name.\n\n" +
			"  name: machines-serviced\n" +
			"  filter: {types: [equipment.machine.serviced]}\n" +
			"  key: .stream.id\n" +
			"  fold: '{count: ((.state.count // 0) + 1), last: .event.occurred_at}'",
		Example: "  backbone projections create machines.yaml --dry-run\n  backbone projections create machines.yaml",
	}
	options := clientFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "try it on events that are there, and do not create it")
	cmd.Flags().BoolVar(&untried, "untried", false, "create it without a trial")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return CreateProjection(cmd.Context(), options(), args[0], dryRun, untried)
	}
	return cmd
}

func reviseProjectionCommand() *cobra.Command {
	var r ProjectionRevision
	cmd := &cobra.Command{
		Use: "change FILE", Short: "Build a projection that was created by another definition", Args: cobra.ExactArgs(1),
		Long: "FILE is as for create, and names the projection. The definition is tried, and a version is built with\n" +
			"it beside the one that readers are shown; versions, compare, switch, rollback, cancel and drop look after\n" +
			"it as after any rebuild. With --switch readers are switched to it once it has caught up. A file that definition\n" +
			"has printed says which version readers were shown (expected_version): the change is refused once somebody\n" +
			"else has shown them another one. Without that member any version is changed; 0 stands for none, and so changes\n" +
			"nothing. It takes the role admin.",
		Example: "  backbone projections change machines.yaml --dry-run\n  backbone projections change machines.yaml --compare\n  backbone projections change machines.yaml --switch",
	}
	options := clientFlags(cmd)
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "try it on events that are there, and do not build it")
	cmd.Flags().BoolVar(&r.Untried, "untried", false, "build it without a trial")
	cmd.Flags().BoolVar(&r.Wait, "wait", false, "wait until it has caught up and show the progress")
	cmd.Flags().BoolVar(&r.Compare, "compare", false, "wait, then show in what it differs from the version that is shown")
	cmd.Flags().BoolVar(&r.Switch, "switch", false, "switch readers to it once it has caught up")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Path = args[0]
		return ReviseProjection(cmd.Context(), options(), r)
	}
	return cmd
}

func projectionDefinitionCommand() *cobra.Command {
	var version int
	cmd := &cobra.Command{
		Use: "definition PROJECTION", Short: "Print the definition of a projection that was created", Args: cobra.ExactArgs(1),
		Long:    "It is printed as a file for `backbone projections change`, with the version that readers are shown.",
		Example: "  backbone projections definition machines-serviced > machines.yaml\n  backbone projections definition machines-serviced --version 2 --json",
	}
	options := clientFlags(cmd)
	cmd.Flags().IntVar(&version, "version", 0, "of the projection (default: the one that readers are shown)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return ShowProjectionDefinition(cmd.Context(), options(), args[0], version)
	}
	return cmd
}

func deleteProjectionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete PROJECTION", Short: "Delete a projection that was created, and its rows", Args: cobra.ExactArgs(1),
		Example: "  backbone projections delete machines-serviced",
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return DeleteProjection(cmd.Context(), options(), args[0])
	}
	return cmd
}

func projectionRowsCommand() *cobra.Command {
	var q ProjectionRowsQuery
	cmd := &cobra.Command{
		Use: "rows PROJECTION", Short: "List the rows of a projection that was created", Args: cobra.ExactArgs(1),
		Example: "  backbone projections rows machines-serviced --legal-entity USMF\n  backbone projections rows machines-serviced --legal-entity USMF --prefix M- --json",
	}
	options := clientFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&q.LegalEntity, "legal-entity", "", "in this legal entity")
	f.StringVar(&q.Key, "key", "", "only this row")
	f.StringVar(&q.Prefix, "prefix", "", "only rows whose keys begin so")
	f.StringVar(&q.MinSequence, "min-sequence", "", "wait until the projection has got there")
	f.IntVar(&q.Limit, "limit", 100, "at most so many")
	f.StringVar(&q.Cursor, "cursor", "", "go on after an earlier page")
	_ = cmd.MarkFlagRequired("legal-entity")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return ListProjectionRows(cmd.Context(), options(), args[0], q)
	}
	return cmd
}

// ProjectionRowsQuery says which rows `backbone projections rows` lists.
type ProjectionRowsQuery = httpclient.ProjectionRowsQuery

const largestDefinition = 256 << 10

// readDefinition reads a definition in YAML, of which JSON is a part. Fault
// projection.file_invalid.
func readDefinition(path string) (json.RawMessage, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, largestDefinition))
	if err != nil {
		return nil, err
	}
	var document map[string]any
	if err := yaml.Unmarshal(text, &document); err != nil || document == nil {
		return nil, fault.New(fault.Invalid, "projection.file_invalid", "%s is no definition in YAML or JSON; see `backbone projections create --help`", path)
	}
	return json.Marshal(document)
}

// CreateProjection creates the projection of a file, or only tries it.
func CreateProjection(ctx context.Context, o ClientOptions, path string, dryRun, untried bool) error {
	definition, err := readDefinition(path)
	if err != nil {
		return err
	}
	client, err := o.connect()
	if err != nil {
		return err
	}
	made, err := client.CreateProjection(ctx, definition, dryRun, untried)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(made)
	}
	done := "is created and runs"
	if dryRun {
		done = "would do; it was not created"
	}
	if !untried || dryRun {
		done += triedOn(made)
	}
	fmt.Fprintf(o.Out, "%s %s.\n", made.Name, done)
	return o.trial(made)
}

func triedOn(made httpclient.ProjectionTrial) string {
	text := ". It was tried on " + counted(made.LookedAt, "event")
	if made.Events < made.LookedAt {
		text += fmt.Sprintf(", of which %d counted", made.Events)
	}
	return text
}

// trial prints what a definition made of events, and what is likely a mistake in it.
func (o ClientOptions) trial(made httpclient.ProjectionTrial) error {
	for _, w := range made.Warnings {
		fmt.Fprintf(o.Out, "Warning: %s\n", w.Detail)
	}
	if len(made.Trial) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LEGAL ENTITY\tEVENTS\tROWS\tKEY\tSTATE")
	for _, t := range made.Trial {
		if len(t.Rows) == 0 {
			fmt.Fprintf(table, "%s\t%d\t%d\t-\t-\n", t.LegalEntity, t.Events, t.RowCount)
		}
		for _, r := range t.Rows {
			fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\n", t.LegalEntity, t.Events, t.RowCount, r.Key, r.State)
		}
	}
	return table.Flush()
}

// ProjectionRevision is what `backbone projections change` asks for.
type ProjectionRevision struct {
	Path    string // of the definition
	DryRun  bool
	Untried bool
	Wait    bool // until the version has caught up
	Compare bool // then compare; it waits
	Switch  bool // then switch
}

// ReviseProjection builds a version of a projection by the definition of a file beside
// the one that is shown. That rows differ is what a change is for: it keeps nobody from
// switching.
func ReviseProjection(ctx context.Context, o ClientOptions, r ProjectionRevision) error {
	definition, err := readDefinition(r.Path)
	if err != nil {
		return err
	}
	var named struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(definition, &named); err != nil || named.Name == "" {
		return fault.New(fault.Invalid, "projection.file_invalid", "%s does not name the projection; give it a name", r.Path)
	}
	client, err := o.connect()
	if err != nil {
		return err
	}
	watched := r.Wait || r.Compare
	made, err := client.ChangeProjection(ctx, named.Name, definition, r.DryRun, r.Untried, r.Switch && !watched)
	if err != nil {
		return err
	}
	if err := o.revised(made, r, watched); err != nil {
		return err
	}
	if r.DryRun || made.Version == made.Shown || !watched {
		return nil
	}
	b, err := o.awaitRebuild(ctx, client, made.Name, "", made.Version)
	if err != nil {
		return err
	}
	if r.Compare && b.Building != nil {
		c, err := client.CompareProjection(ctx, made.Name, "", 0)
		if err != nil {
			return err
		}
		if err := o.comparison(c); err != nil {
			return err
		}
	}
	if r.Switch && b.Building != nil {
		return o.switchCaughtUp(ctx, client, made.Name, "")
	}
	if err := o.rebuild(b); err != nil || o.JSON || b.Building == nil {
		return err
	}
	return o.nextOfRebuild(made.Name)
}

// revised prints what became of a changed definition, with the next step.
func (o ClientOptions) revised(made httpclient.ProjectionTrial, r ProjectionRevision, watched bool) error {
	if o.JSON {
		return o.json(made)
	}
	var text string
	switch {
	case r.DryRun && made.Unchanged:
		text = fmt.Sprintf("has this definition already, in version %d", made.Version)
	case r.DryRun:
		text = "would do; it was not changed"
	case made.Unchanged && made.Version == made.Shown:
		text = fmt.Sprintf("has this definition already, in version %d, which readers are shown; nothing was begun", made.Version)
	case made.Unchanged:
		text = fmt.Sprintf("has this definition already, in version %d, which is being built; look at it with `backbone projections versions %s`", made.Version, made.Name)
	default:
		text = fmt.Sprintf("is built by the new definition in version %d; readers are shown version %d", made.Version, made.Shown)
	}
	if !r.Untried || r.DryRun {
		text += triedOn(made)
	}
	fmt.Fprintf(o.Out, "%s %s.\n", made.Name, text)
	if err := o.trial(made); err != nil {
		return err
	}
	switch {
	case r.DryRun || made.Unchanged || watched:
	case r.Switch:
		fmt.Fprintln(o.Out, "Readers are switched to it once it has caught up.")
	default:
		fmt.Fprintf(o.Out, "Compare it with `backbone projections compare %[1]s`, then show it with `backbone projections switch %[1]s` or end it with `cancel`.\n", made.Name)
	}
	return nil
}

// definitionFile is a definition as files have it. ExpectedVersion is the version that
// readers were shown when it was printed, so that a change of it is refused once somebody
// else has changed it.
type definitionFile struct {
	Name            string `json:"name" yaml:"name"`
	ExpectedVersion int    `json:"expected_version,omitempty" yaml:"expected_version,omitempty"`

	Description string `json:"description,omitempty" yaml:"description,omitempty"`
	Filter      struct {
		Types    []string `json:"types,omitempty" yaml:"types,omitempty"`
		Tags     []string `json:"tags,omitempty" yaml:"tags,omitempty"`
		Entities []struct {
			Type string `json:"entity_type" yaml:"entity_type"`
			ID   string `json:"entity_id,omitempty" yaml:"entity_id,omitempty"`
		} `json:"entities,omitempty" yaml:"entities,omitempty"`
		LegalEntities []string `json:"legal_entities,omitempty" yaml:"legal_entities,omitempty"`
	} `json:"filter" yaml:"filter"`
	Key  string `json:"key" yaml:"key"`
	Fold string `json:"fold" yaml:"fold"`
}

// ShowProjectionDefinition prints the definition of a version, 0: of the one that
// readers are shown. Faults: projection.not_found, projection.built_in.
func ShowProjectionDefinition(ctx context.Context, o ClientOptions, name string, version int) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	all, err := client.Projections(ctx)
	if err != nil {
		return err
	}
	shown := 0
	for _, p := range all {
		if p.Name == name && p.Current {
			shown = p.Version
		}
	}
	for _, p := range all {
		if p.Name != name || version == 0 && !p.Current || version != 0 && p.Version != version {
			continue
		}
		if p.Definition == nil {
			return fault.New(fault.FailedPrecondition, "projection.built_in", "projection %s has no definition; it comes with a module", name)
		}
		d := definitionFile{Name: name, ExpectedVersion: shown}
		if err := json.Unmarshal(p.Definition, &d); err != nil {
			return err
		}
		if o.JSON {
			return o.json(d)
		}
		encoder := yaml.NewEncoder(o.Out)
		encoder.SetIndent(2)
		if err := encoder.Encode(d); err != nil {
			return err
		}
		return encoder.Close()
	}
	return fault.New(fault.NotFound, "projection.not_found", "there is no version of projection %q that is alive; list them", name)
}

// DeleteProjection deletes a projection of the tenant's own.
func DeleteProjection(ctx context.Context, o ClientOptions, name string) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	if err := client.DeleteProjection(ctx, name); err != nil {
		return err
	}
	if o.JSON {
		return o.json(map[string]any{"name": name, "deleted": true})
	}
	fmt.Fprintf(o.Out, "%s is deleted.\n", name)
	return nil
}

// ListProjectionRows prints rows of a projection of the tenant's own.
func ListProjectionRows(ctx context.Context, o ClientOptions, name string, q ProjectionRowsQuery) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	page, err := client.ProjectionRows(ctx, name, q)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(page)
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KEY\tSEQUENCE\tSTATE")
	for _, r := range page.Rows {
		fmt.Fprintf(table, "%s\t%s\t%s\n", r.Key, r.Sequence, r.State)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if page.HasMore {
		fmt.Fprintln(o.Out, "There are more; go on with --cursor", page.NextCursor)
	}
	return nil
}
