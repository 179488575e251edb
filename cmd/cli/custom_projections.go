package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	yaml "go.yaml.in/yaml/v3"

	"github.com/erpbackbone/backbone/adapters/client"
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
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "try it on events that are there, and do not create it")
	cmd.Flags().BoolVar(&untried, "untried", false, "create it without a trial")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		definition, err := readDefinition(args[0])
		if err != nil {
			return err
		}
		made, err := s.CreateProjection(ctx, client.CreateProjectionParams{DryRun: dryRun, Untried: untried}, client.NewProjection{}, client.WithBody(definition), s.keep())
		if err != nil {
			return err
		}
		done := "is created and runs"
		if dryRun {
			done = "would do; it was not created"
		}
		if !untried || dryRun {
			done += triedOn(made)
		}
		return s.print(func(p *page) {
			p.line("%s %s.", made.Name, done)
			p.trial(made)
		})
	})
}

// triedOn renders the number of events on which a definition was tried.
func triedOn(made client.ProjectionCreated) string {
	text := ". It was tried on " + counted(made.LookedAt, "event")
	if made.Events < made.LookedAt {
		text += fmt.Sprintf(", of which %d counted", made.Events)
	}
	return text
}

// trial writes the rows that a definition made of events, and its likely mistakes.
func (p *page) trial(made client.ProjectionCreated) {
	for _, w := range made.Warnings {
		p.line("Warning: %s", w.Detail)
	}
	if len(made.Trial) == 0 {
		return
	}
	p.row("LEGAL ENTITY", "EVENTS", "ROWS", "KEY", "STATE")
	for _, t := range made.Trial {
		if len(t.Rows) == 0 {
			p.row(t.LegalEntity, t.Events, t.RowCount, "-", "-")
		}
		for _, r := range t.Rows {
			p.row(t.LegalEntity, t.Events, t.RowCount, r.Key, string(r.State))
		}
	}
}

const maxDefinitionBytes = 256 << 10

// readDefinition reads a definition in YAML or JSON. Fault
// projection.file_invalid.
func readDefinition(path string) (json.RawMessage, error) {
	text, err := readLimited(path, nil, maxDefinitionBytes)
	if err != nil && !errors.Is(err, errTooLarge) {
		return nil, err
	}
	var document map[string]any
	if errors.Is(err, errTooLarge) || yaml.Unmarshal(text, &document) != nil || document == nil {
		return nil, fault.New(fault.Invalid, "projection.file_invalid", "%s is no definition in YAML or JSON; see `backbone projections create --help`", path)
	}
	return json.Marshal(document)
}

func reviseProjectionCommand() *cobra.Command {
	var r projectionChange
	cmd := &cobra.Command{
		Use: "change FILE", Short: "Build a projection that was created by another definition", Args: cobra.ExactArgs(1),
		Long: "FILE is as for create, and names the projection. The definition is tried, and a version is built with\n" +
			"it beside the one that readers are shown; versions, compare, switch, rollback, cancel and drop operate\n" +
			"it like any rebuild. With --switch readers are switched to it once it has caught up. A file that definition\n" +
			"has printed says which version readers were shown (expected_version): the change is refused once another\n" +
			"caller has shown them another one. Without that member any version is changed; 0 means none, and so changes\n" +
			"nothing. It takes the role admin.",
		Example: "  backbone projections change machines.yaml --dry-run\n  backbone projections change machines.yaml --compare\n  backbone projections change machines.yaml --switch",
	}
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "try it on events that are there, and do not build it")
	cmd.Flags().BoolVar(&r.untried, "untried", false, "build it without a trial")
	cmd.Flags().BoolVar(&r.wait, "wait", false, "wait until it has caught up and show the progress")
	cmd.Flags().BoolVar(&r.compare, "compare", false, "wait, then show in what it differs from the version that is shown")
	cmd.Flags().BoolVar(&r.switchTo, "switch", false, "switch readers to it once it has caught up")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error { return s.changeProjection(ctx, args[0], r) })
}

// projectionChange are the flags of `backbone projections change`.
type projectionChange struct {
	dryRun   bool
	untried  bool
	wait     bool // until the version has caught up
	compare  bool // then compare; it waits
	switchTo bool // then switch
}

// changeProjection builds a version of a projection from the definition in a file, while
// readers keep the active version. Unlike a rebuild, it switches to a version whose rows differ:
// that is the purpose of a change.
func (s *session) changeProjection(ctx context.Context, path string, r projectionChange) error {
	definition, err := readDefinition(path)
	if err != nil {
		return err
	}
	var named struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(definition, &named); err != nil || named.Name == "" {
		return fault.New(fault.Invalid, "projection.file_invalid", "%s does not name the projection; give it a name", path)
	}
	follow := r.wait || r.compare
	made, err := s.ReplaceProjection(ctx, named.Name, client.ReplaceProjectionParams{DryRun: r.dryRun, Untried: r.untried, Switch: r.switchTo && !follow},
		client.NewProjection{}, client.WithBody(definition), s.keep())
	if err != nil {
		return err
	}
	if err := s.print(func(p *page) { p.changed(made, r) }); err != nil {
		return err
	}
	if r.dryRun || made.Version == made.Shown || !follow {
		return nil
	}
	b, err := s.awaitRebuild(ctx, made.Name, "", made.Version)
	if err != nil {
		return err
	}
	isBuilding := b.Building.Version != 0
	if r.compare && isBuilding {
		if err := s.comparison(s.CompareProjection(ctx, made.Name, client.ProjectionComparisonCommand{}, s.keep())); err != nil {
			return err
		}
	}
	if r.switchTo && isBuilding {
		return s.switchCaughtUp(ctx, made.Name, "")
	}
	if err := s.rebuild(b, nil); err != nil || s.json || !isBuilding {
		return err
	}
	return s.nextOfRebuild(made.Name)
}

// changed writes the outcome of a changed definition and the next step.
func (p *page) changed(made client.ProjectionCreated, r projectionChange) {
	var text string
	switch {
	case r.dryRun && made.Unchanged:
		text = fmt.Sprintf("has this definition already, in version %d", made.Version)
	case r.dryRun:
		text = "would do; it was not changed"
	case made.Unchanged && made.Version == made.Shown:
		text = fmt.Sprintf("has this definition already, in version %d, which readers are shown; nothing was begun", made.Version)
	case made.Unchanged:
		text = fmt.Sprintf("has this definition already, in version %d, which is being built; see `backbone projections versions %s`", made.Version, made.Name)
	default:
		text = fmt.Sprintf("is built by the new definition in version %d; readers are shown version %d", made.Version, made.Shown)
	}
	if !r.untried || r.dryRun {
		text += triedOn(made)
	}
	p.line("%s %s.", made.Name, text)
	p.trial(made)
	switch {
	case r.dryRun || made.Unchanged || r.wait || r.compare:
	case r.switchTo:
		p.line("Readers are switched to it once it has caught up.")
	default:
		p.line("Compare it with `backbone projections compare %[1]s`, then show it with `backbone projections switch %[1]s` or end it with `cancel`.", made.Name)
	}
}

func projectionDefinitionCommand() *cobra.Command {
	var version int
	cmd := &cobra.Command{
		Use: "definition PROJECTION", Short: "Print the definition of a projection that was created", Args: cobra.ExactArgs(1),
		Long:    "It is printed as a file for `backbone projections change`, with the version that readers are shown.",
		Example: "  backbone projections definition machines-serviced > machines.yaml\n  backbone projections definition machines-serviced --version 2 --json",
	}
	cmd.Flags().IntVar(&version, "version", 0, "of the projection (default: the one that readers are shown)")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		return s.projectionDefinition(ctx, args[0], version)
	})
}

// definitionFile is the content of a definition file. ExpectedVersion was the active version
// when the file was printed, so that the server refuses a change that would overwrite another
// caller's.
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

// projectionDefinition prints the definition of a version; 0 is the active one. Faults:
// projection.not_found, projection.built_in.
func (s *session) projectionDefinition(ctx context.Context, name string, version int) error {
	all, err := s.ListProjections(ctx)
	if err != nil {
		return err
	}
	active := 0
	for _, v := range all.Projections {
		if v.Name == name && v.Current {
			active = v.Version
		}
	}
	for _, v := range all.Projections {
		if v.Name != name || version == 0 && !v.Current || version != 0 && v.Version != version {
			continue
		}
		if v.Definition.Fold == "" {
			return fault.New(fault.FailedPrecondition, "projection.built_in", "projection %s has no definition; it comes with a module", name)
		}
		text, err := json.Marshal(v.Definition)
		if err != nil {
			return err
		}
		d := definitionFile{Name: name, ExpectedVersion: active}
		if err := json.Unmarshal(text, &d); err != nil {
			return err
		}
		if s.json {
			return printJSON(s.out, d)
		}
		encoder := yaml.NewEncoder(s.out)
		encoder.SetIndent(2)
		if err := encoder.Encode(d); err != nil {
			return err
		}
		return encoder.Close()
	}
	return fault.New(fault.NotFound, "projection.not_found", "there is no version of projection %q that is alive; list them", name)
}

func deleteProjectionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete PROJECTION", Short: "Delete a projection that was created, and its rows", Args: cobra.ExactArgs(1),
		Example: "  backbone projections delete machines-serviced",
	}
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		if err := s.DeleteProjection(ctx, args[0]); err != nil {
			return err
		}
		return s.show(map[string]any{"name": args[0], "deleted": true}, func(p *page) { p.line("%s is deleted.", args[0]) })
	})
}

func projectionRowsCommand() *cobra.Command {
	var query client.GetProjectionRowsParams
	cmd := &cobra.Command{
		Use: "rows PROJECTION", Short: "List the rows of a projection that was created", Args: cobra.ExactArgs(1),
		Example: "  backbone projections rows machines-serviced --legal-entity USMF\n  backbone projections rows machines-serviced --legal-entity USMF --prefix M- --json",
	}
	f := cmd.Flags()
	legalEntityFlag(cmd, &query.LegalEntity, "in this legal entity (required; environment BACKBONE_LEGAL_ENTITY)")
	f.StringVar(&query.Key, "key", "", "only this row")
	f.StringVar(&query.Prefix, "prefix", "", "only rows whose keys begin so")
	f.StringVar(&query.MinSequence, "min-sequence", "", "wait until the projection has got there")
	f.IntVar(&query.Limit, "limit", 100, "at most so many")
	f.StringVar(&query.Cursor, "cursor", "", "continue after an earlier page")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		list, err := s.GetProjectionRows(ctx, args[0], query, s.keep())
		if err != nil {
			return err
		}
		return s.print(func(p *page) {
			p.row("KEY", "SEQUENCE", "STATE")
			for _, r := range list.Rows {
				p.row(r.Key, r.Sequence, string(r.State))
			}
			if list.HasMore {
				p.next(list.NextCursor)
			}
		})
	})
}
