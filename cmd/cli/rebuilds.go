package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// rebuildCommands builds the commands of `backbone projections` for versions and snapshots.
func rebuildCommands() []*cobra.Command {
	return []*cobra.Command{
		rebuildCommand(), snapshotCommand(), versionsCommand(), compareCommand(),
		switchCommand("switch", (*client.Client).SwitchProjection, "Show readers the version that was built", "The version before is kept and follows the log, to go back to, until it is dropped."),
		switchCommand("rollback", (*client.Client).RollbackProjection, "Show readers the previous version again", "The version that was shown is kept in turn."),
		removeCommand("cancel", false, "End a rebuild and remove what it wrote"),
		removeCommand("drop", true, "Remove the version that is kept to go back to, or a snapshot"),
	}
}

func rebuildCommand() *cobra.Command {
	var o rebuildOptions
	var rows client.ProjectionRowsCommand
	var entity string
	cmd := &cobra.Command{
		Use: "rebuild PROJECTION", Short: "Rebuild a projection as a new version, beside the current one", Args: cobra.ExactArgs(1),
		Long: "Readers see the current version until they are switched to the new one. With --switch\n" +
			"that is done once it has caught up; with --compare --switch only if no row differs. Ending this\n" +
			"command does not end the rebuild; `backbone projections cancel` does.\n\n" +
			"With --legal-entity only the rows of that one are rebuilt; switching with the same flag shows them\n" +
			"there and keeps the previous ones. With --from-snapshot the new version begins with a copy of a snapshot\n" +
			"and reads only what came after it.\n\n" +
			"With --entity or --subject only the rows of that entity, or of the entities that events about that\n" +
			"person belong to, are recomputed from the log, in place and at once, in every version.",
		Example: "  backbone projections rebuild gl.ledger --wait --compare\n  backbone projections rebuild gl.ledger --compare --switch\n  backbone projections rebuild ap.vendors --switch\n" +
			"  backbone projections rebuild gl.ledger --legal-entity USMF --compare\n  backbone projections rebuild gl.ledger --from-snapshot latest --wait\n" +
			"  backbone projections rebuild ap.vendors --entity ap.vendor/V-1042 --legal-entity USMF --dry-run\n  backbone projections rebuild ap.vendors --subject contact:C-17",
	}
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until it has caught up and show the progress")
	cmd.Flags().BoolVar(&o.compare, "compare", false, "wait, then compare it row by row with the version that is shown")
	cmd.Flags().BoolVar(&o.switchTo, "switch", false, "switch readers to it once it has caught up")
	cmd.Flags().StringVar(&entity, "entity", "", "only the rows of this entity: type/id of its stream; with --legal-entity")
	cmd.Flags().StringVar(&rows.Subject, "subject", "", "only the rows of the entities that events about this person belong to: type:id")
	cmd.Flags().StringVar(&rows.LegalEntity, "legal-entity", "", "only this one; of the entity with --entity (default: all, with --subject all that you may change)")
	cmd.Flags().StringVar(&o.fromSnapshot, "from-snapshot", "", "begin with a copy of this snapshot: its version, or latest")
	cmd.Flags().IntVar(&rows.Version, "version", 0, "with --entity or --subject: only in this version (default: in all)")
	cmd.Flags().BoolVar(&rows.DryRun, "dry-run", false, "with --entity or --subject: print what would change and change nothing")
	cmd.MarkFlagsMutuallyExclusive("entity", "subject")
	for _, whole := range []string{"wait", "compare", "switch", "from-snapshot"} {
		cmd.MarkFlagsMutuallyExclusive("entity", whole)
		cmd.MarkFlagsMutuallyExclusive("subject", whole)
	}
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		if entity != "" || rows.Subject != "" {
			return s.rebuildRows(ctx, args[0], entity, rows)
		}
		o.name, o.legalEntity = args[0], rows.LegalEntity
		if rows.Version != 0 || rows.DryRun {
			return fault.New(fault.Invalid, "projection.target_invalid", "--version and --dry-run go with --entity or --subject; name one")
		}
		return s.rebuildProjection(ctx, o)
	})
}

// rebuildOptions are the flags of `backbone projections rebuild` for whole versions.
type rebuildOptions struct {
	name         string
	legalEntity  string // "": all
	fromSnapshot string // version of a snapshot, or latest; "": from the beginning of the log
	wait         bool   // until it has caught up
	compare      bool   // then compare; it waits
	switchTo     bool   // then switch; with compare only if nothing differs
}

// rebuildProjection builds a version of a projection while readers keep the active one.
func (s *session) rebuildProjection(ctx context.Context, o rebuildOptions) error {
	b, err := s.RebuildProjection(ctx, o.name, client.ProjectionRebuildCommand{
		Switch: o.switchTo && !o.wait && !o.compare, LegalEntity: o.legalEntity, FromSnapshot: o.fromSnapshot,
	}, s.keep())
	if err != nil || !o.wait && !o.compare {
		return s.rebuild(b, err)
	}
	version, command := buildingOf(b, o.legalEntity).Version, commandTarget(o.name, o.legalEntity)
	if version == 0 {
		return s.rebuild(b, nil) // another caller has ended it
	}
	if b, err = s.awaitRebuild(ctx, o.name, o.legalEntity, version); err != nil {
		return err
	}
	if o.compare {
		c, err := s.CompareProjection(ctx, o.name, client.ProjectionComparisonCommand{LegalEntity: o.legalEntity}, s.keep())
		if err := s.comparison(c, err); err != nil {
			return err
		}
		if o.switchTo && (c.Rows != "0" || len(c.NotCompared) > 0) {
			return fault.New(fault.FailedPrecondition, "projection.versions_differ",
				"version %d differs from the one that is shown; switch to it with `backbone projections switch %s` if that is right, or cancel it", version, command)
		}
	}
	if o.switchTo {
		return s.switchCaughtUp(ctx, o.name, o.legalEntity)
	}
	if !o.compare {
		if err := s.rebuild(b, nil); err != nil {
			return err
		}
	}
	return s.nextOfRebuild(command)
}

// buildingOf returns the version that is being built for a legal entity, or for all of them with
// ""; the zero value if there is none.
func buildingOf(b client.ProjectionRebuild, legalEntity string) client.ProjectionBuilding {
	if legalEntity == "" {
		return b.Building
	}
	for _, part := range b.LegalEntities {
		if part.LegalEntity == legalEntity {
			return part.Building
		}
	}
	return client.ProjectionBuilding{}
}

// commandTarget names a projection, and the legal entity, as arguments of a command.
func commandTarget(name, legalEntity string) string {
	if legalEntity == "" {
		return name
	}
	return name + " --legal-entity " + legalEntity
}

// nextOfRebuild describes the next step once a version has caught up.
func (s *session) nextOfRebuild(command string) error {
	if s.json {
		return nil
	}
	return printPage(s.out, func(p *page) {
		p.line("Show it to readers with `backbone projections switch %[1]s`, or end it with `backbone projections cancel %[1]s`.", command)
	})
}

// switchTries bounds the attempts at a switch. The server refuses a switch when more events were
// written since the version caught up than it may be behind.
const switchTries = 30

func (s *session) switchCaughtUp(ctx context.Context, name, legalEntity string) error {
	for try := 1; ; try++ {
		b, err := s.SwitchProjection(ctx, name, client.ProjectionSwitchCommand{LegalEntity: legalEntity}, s.keep())
		if fault.CodeOf(err) != "projection.version_behind" || try == switchTries {
			return s.rebuild(b, err)
		}
		if err := ports.Sleep(ctx, rebuildPoll); err != nil {
			return err
		}
	}
}

// rebuildPoll is the pause between two reads of a rebuild's progress.
const rebuildPoll = 500 * time.Millisecond

// watchRebuild reads the versions and snapshots of a projection until done reports true or an
// error, and returns the last answer.
func (s *session) watchRebuild(ctx context.Context, name string, done func(client.ProjectionRebuild) (bool, error)) (client.ProjectionRebuild, error) {
	for {
		b, err := s.GetProjectionRebuild(ctx, name, s.keep())
		if err != nil {
			return b, err
		}
		if ended, err := done(b); ended || err != nil {
			return b, err
		}
		if err := ports.Sleep(ctx, rebuildPoll); err != nil {
			return b, err
		}
	}
}

// awaitRebuild waits until a version has caught up and shows its progress. Faults:
// projection.version_halted, projection.not_building when another caller ended it.
func (s *session) awaitRebuild(ctx context.Context, name, legalEntity string, version int) (client.ProjectionRebuild, error) {
	drawn := false
	defer func() {
		if drawn {
			fmt.Fprintln(s.err)
		}
	}()
	return s.watchRebuild(ctx, name, func(b client.ProjectionRebuild) (caughtUp bool, err error) {
		building := buildingOf(b, legalEntity)
		if building.Version != version {
			if b.Active == version {
				return true, nil
			}
			return false, fault.New(fault.FailedPrecondition, "projection.not_building", "version %d of projection %s is not built any more; another caller has ended it", version, name)
		}
		if s.terminal {
			fmt.Fprintf(s.err, "\r%s\x1b[K", rebuildBar(building))
			drawn = true
		}
		if building.Faulted > 0 || building.Status == "faulted" {
			return false, fault.New(fault.FailedPrecondition, "projection.version_halted", "version %d of projection %s is blocked at an event; see `backbone deadletters`, then fix or cancel it", version, name)
		}
		return building.CaughtUp, nil
	})
}

// rebuildBar draws the progress of a rebuild on one line.
func rebuildBar(b client.ProjectionBuilding) string {
	done, _ := strconv.ParseUint(b.DoneEvents, 10, 64)
	total, _ := strconv.ParseUint(b.TotalEvents, 10, 64)
	full := barWidth
	if total > 0 && done < total {
		full = int(float64(barWidth) * float64(done) / float64(total))
	}
	line := fmt.Sprintf("[%s%s] %s/%s events", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), b.DoneEvents, b.TotalEvents)
	if b.EventsPerSecond > 0 {
		line += fmt.Sprintf(", %.0f/s", b.EventsPerSecond)
	}
	if b.SecondsLeft > 0 {
		line += ", " + (time.Duration(b.SecondsLeft * float64(time.Second))).Round(time.Second).String() + " left"
	}
	return line
}

func snapshotCommand() *cobra.Command {
	var legalEntity string
	var wait bool
	cmd := &cobra.Command{
		Use: "snapshot PROJECTION", Short: "Take a snapshot that a rebuild may begin with", Args: cobra.ExactArgs(1),
		Long: "The rows that readers are shown are copied as they are, each legal entity at one event, while readers\n" +
			"and the projection continue. The newest three are kept. What was redacted or erased since is never copied\n" +
			"back, and no snapshot of another release's handler is.",
		Example: "  backbone projections snapshot gl.ledger --wait\n  backbone projections rebuild gl.ledger --from-snapshot latest --compare",
	}
	cmd.Flags().StringVar(&legalEntity, "legal-entity", "", "only this one (default: all)")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it is complete")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		name := args[0]
		b, err := s.TakeProjectionSnapshot(ctx, name, client.ProjectionPartCommand{LegalEntity: legalEntity}, s.keep())
		if err != nil {
			return err
		}
		version := 0
		for _, taken := range b.Snapshots {
			if taken.LegalEntity == legalEntity {
				version = max(version, taken.Version)
			}
		}
		if wait {
			b, err = s.watchRebuild(ctx, name, func(b client.ProjectionRebuild) (complete bool, err error) {
				at := slices.IndexFunc(b.Snapshots, func(taken client.ProjectionSnapshot) bool { return taken.Version == version })
				if at < 0 {
					return false, fault.New(fault.FailedPrecondition, "projection.snapshot_not_found", "snapshot %d of projection %s is not there any more; take another one", version, name)
				}
				return b.Snapshots[at].Complete, nil
			})
		}
		return s.rebuild(b, err)
	})
}

func versionsCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use: "versions PROJECTION", Short: "Show the versions of a projection and how far a rebuild has come", Args: cobra.ExactArgs(1),
		Example: "  backbone projections versions gl.ledger\n  backbone projections versions gl.ledger --json",
	}, func(ctx context.Context, s *session, args []string) error {
		return s.rebuild(s.GetProjectionRebuild(ctx, args[0], s.keep()))
	})
}

// switchCommand builds switch and rollback.
func switchCommand(name string, show func(*client.Client, context.Context, string, client.ProjectionSwitchCommand, ...client.Option) (client.ProjectionRebuild, error), short, long string) *cobra.Command {
	var force bool
	var legalEntity string
	cmd := &cobra.Command{
		Use: name + " PROJECTION", Short: short, Long: long, Args: cobra.ExactArgs(1),
		Example: "  backbone projections " + name + " gl.ledger\n  backbone projections " + name + " gl.ledger --legal-entity USMF",
	}
	cmd.Flags().StringVar(&legalEntity, "legal-entity", "", "only this one, of which a version of its own was built (default: the version of all)")
	cmd.Flags().BoolVar(&force, "force", false, "even if that version lacks events; readers may go back in time")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		return s.rebuild(show(s.Client, ctx, args[0], client.ProjectionSwitchCommand{LegalEntity: legalEntity, Force: force}, s.keep()))
	})
}

func removeCommand(name string, retained bool, short string) *cobra.Command {
	var legalEntity string
	snapshot := 0
	cmd := &cobra.Command{
		Use: name + " PROJECTION", Short: short, Args: cobra.ExactArgs(1), Long: "Its rows are removed in the background.",
		Example: "  backbone projections " + name + " gl.ledger",
	}
	cmd.Flags().StringVar(&legalEntity, "legal-entity", "", "the version, or the snapshot, of this one alone (default: that of all)")
	if retained {
		cmd.Example += "\n  backbone projections " + name + " gl.ledger --snapshot 4"
		cmd.Flags().IntVar(&snapshot, "snapshot", 0, "remove this snapshot instead")
	}
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		if retained {
			return s.rebuild(s.DropProjectionVersion(ctx, args[0], client.ProjectionDropCommand{LegalEntity: legalEntity, Snapshot: snapshot}, s.keep()))
		}
		return s.rebuild(s.CancelProjectionRebuild(ctx, args[0], client.ProjectionPartCommand{LegalEntity: legalEntity}, s.keep()))
	})
}

// rebuild writes the versions of a projection and the progress of the one that is being built.
func (s *session) rebuild(b client.ProjectionRebuild, err error) error {
	if err != nil {
		return err
	}
	return s.print(func(p *page) {
		p.line("%s: readers are shown version %d", b.Name, b.Active)
		if b.Retained != 0 {
			p.line("Version %d is kept; go back to it with `backbone projections rollback %s`.", b.Retained, b.Name)
		}
		for _, version := range b.Dropping {
			p.line("Version %d is being removed.", version)
		}
		p.building("", b.Building)
		for _, part := range b.LegalEntities {
			if part.Retained != 0 {
				p.line("%s: version %d keeps what was shown there before; go back to it with `backbone projections rollback %s`.",
					part.LegalEntity, part.Retained, commandTarget(b.Name, part.LegalEntity))
			}
			p.building(part.LegalEntity+": ", part.Building)
		}
		p.snapshots(b.Snapshots)
	})
}

// building writes the progress of the version that is being built, if any.
func (p *page) building(prefix string, b client.ProjectionBuilding) {
	if b.Version == 0 {
		return
	}
	state := b.Status
	switch {
	case b.CaughtUp:
		state = "caught up"
	case b.FromSnapshot != 0 && b.Status == "created":
		state = fmt.Sprintf("copying snapshot %d", b.FromSnapshot)
	}
	begin := "Version"
	if prefix != "" {
		begin = prefix + "version"
	}
	p.line("%s %d is being built (%s): %s", begin, b.Version, state, rebuildBar(b))
}

// snapshots writes the table of snapshots, if there are any.
func (p *page) snapshots(all []client.ProjectionSnapshot) {
	if len(all) == 0 {
		return
	}
	p.row("\nSNAPSHOT", "LEGAL ENTITY", "SEQUENCE", "ROWS", "TAKEN", "STATE")
	for _, s := range all {
		if len(s.LegalEntities) == 0 {
			p.row(s.Version, cmp.Or(s.LegalEntity, "-"), "-", 0, "-", snapshotState(s, client.ProjectionSnapshotPart{}))
		}
		for _, part := range s.LegalEntities {
			taken := "-"
			if !part.TakenAt.IsZero() {
				taken = part.TakenAt.UTC().Format(minuteLayout)
			}
			p.row(s.Version, part.LegalEntity, part.Sequence, part.RowCount, taken, snapshotState(s, part))
		}
	}
}

func snapshotState(s client.ProjectionSnapshot, part client.ProjectionSnapshotPart) string {
	switch {
	case !s.Complete:
		return "being copied"
	case s.Outdated:
		return "of another handler"
	case !part.Usable:
		return "redacted since"
	default:
		return "usable"
	}
}

func compareCommand() *cobra.Command {
	var examples int
	var legalEntity string
	cmd := &cobra.Command{
		Use: "compare PROJECTION", Short: "Compare the version that is shown with the one that is built", Args: cobra.ExactArgs(1),
		Long:    "Each legal entity is compared at one event. Rows are named by their key; no values are shown.",
		Example: "  backbone projections compare gl.ledger\n  backbone projections compare gl.ledger --examples 100 --json",
	}
	cmd.Flags().StringVar(&legalEntity, "legal-entity", "", "compare what was built for this one alone (default: what was built for all)")
	cmd.Flags().IntVar(&examples, "examples", 10, "name so many rows of each table and legal entity that differ")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		return s.comparison(s.CompareProjection(ctx, args[0], client.ProjectionComparisonCommand{LegalEntity: legalEntity, Examples: examples}, s.keep()))
	})
}

// comparison writes the differences between two versions of a projection.
func (s *session) comparison(c client.ProjectionComparison, err error) error {
	if err != nil {
		return err
	}
	return s.print(func(p *page) { p.comparison(c) })
}

func (p *page) comparison(c client.ProjectionComparison) {
	differ := c.Rows + " rows differ"
	switch {
	case len(c.LegalEntities) == 0:
		differ = "nothing was compared"
	case c.Rows == "1":
		differ = "1 row differs"
	}
	p.line("%s, version %d (left, shown) and version %d (right): %s", c.Name, c.Left, c.Right, differ)
	if len(c.LegalEntities) > 0 {
		p.row("LEGAL ENTITY", "SEQUENCE", "TABLE", "LEFT", "RIGHT", "ONLY LEFT", "ONLY RIGHT", "CHANGED")
	}
	var examples [][]any
	for _, e := range c.LegalEntities {
		for _, t := range e.Tables {
			p.row(e.LegalEntity, e.Sequence, t.Table, t.LeftRows, t.RightRows, t.OnlyLeft, t.OnlyRight, t.Changed)
			for _, x := range t.Examples {
				examples = append(examples, []any{e.LegalEntity, t.Table, string(x.Key), x.In, cmp.Or(strings.Join(x.Columns, ", "), "-")})
			}
		}
	}
	if len(examples) > 0 {
		p.row("\nLEGAL ENTITY", "TABLE", "ROW", "IN", "COLUMNS")
		for _, x := range examples {
			p.row(x...)
		}
	}
	if len(c.NotCompared) > 0 {
		p.line("Not compared, since the versions could not be brought to the same event: %s", strings.Join(c.NotCompared, ", "))
	}
	for _, alone := range []struct {
		version int
		codes   []string
	}{{c.Left, c.OnlyLeft}, {c.Right, c.OnlyRight}} {
		if len(alone.codes) > 0 {
			p.line("Not compared, since only version %d reads them: %s", alone.version, strings.Join(alone.codes, ", "))
		}
	}
}

// rebuildRows recomputes the rows of an entity (type/id of its stream) or a person in place, and
// prints how many differed from the log.
func (s *session) rebuildRows(ctx context.Context, name, entity string, body client.ProjectionRowsCommand) error {
	if entity != "" {
		var found bool
		if body.Entity.Type, body.Entity.ID, found = strings.Cut(entity, "/"); !found || body.Entity.Type == "" || body.Entity.ID == "" {
			return fault.New(fault.Invalid, "projection.target_invalid", "an entity is written as the type and id of its stream, such as ap.vendor/V-1042; correct --entity")
		}
	}
	r, err := s.RebuildProjectionRows(ctx, name, body, s.keep())
	if err != nil {
		return err
	}
	return s.print(func(p *page) {
		if len(r.Rebuilt) == 0 {
			p.line("%s: no event of the projection is about this; nothing was changed", r.Name)
		} else {
			p.line("%s: %s", r.Name, rowsOutcome(r.Rows, r.DryRun))
			p.row("LEGAL ENTITY", "VERSION", "SEQUENCE", "ENTITIES", "EVENTS", "TABLE", "ROWS", "REMOVED", "ADDED", "CHANGED")
		}
		skipped := false
		for _, one := range r.Rebuilt {
			skipped = skipped || one.PassedOver != "0"
			for _, t := range one.Tables {
				p.row(one.LegalEntity, one.Version, one.Sequence, one.Entities, one.Events, t.Table, t.RightRows, t.OnlyLeft, t.OnlyRight, t.Changed)
			}
		}
		if skipped {
			p.line("Some events were left out again, because a version had skipped them; see `backbone deadletters`.")
		}
		for _, version := range r.LeftOut {
			p.line("Version %d was left as it is: another release built it.", version)
		}
	})
}

// rowsOutcome describes what was done about rows that differed from the log.
func rowsOutcome(rows string, dryRun bool) string {
	switch {
	case rows == "0":
		return "all rows are as the log makes them"
	case dryRun && rows == "1":
		return "1 row is not as the log makes it; nothing was changed"
	case dryRun:
		return rows + " rows are not as the log makes them; nothing was changed"
	case rows == "1":
		return "1 row was not as the log makes it and is now"
	default:
		return rows + " rows were not as the log makes them and are now"
	}
}
