package embeddedpg

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/erpbackbone/backbone/domain/fault"
)

// MinimumMajor is the oldest supported major version of PostgreSQL.
const MinimumMajor = 15

// installHint is the next step when no usable PostgreSQL was found.
const installHint = "install the server package, on Debian or Ubuntu with: apt-get update && apt-get install -y --no-install-recommends postgresql; " +
	"or name the folder that holds initdb and postgres"

// binaryPatterns are the folders in which packages put the server programs.
var binaryPatterns = []string{
	"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                   // packages of postgresql.org for RPM systems
	"/opt/homebrew/opt/postgresql@*/bin", // Homebrew
	"/usr/local/opt/postgresql@*/bin",
}

// installation is one set of server programs.
type installation struct {
	dir   string
	major int
}

// FindBinaries returns the folder that holds the PostgreSQL server programs and
// their major version. With a hint it searches only that folder and its bin. Without
// one it searches PATH and the folders of packages, and takes the newest major
// version from [MinimumMajor] on. Fault: dev.postgres_not_found (FailedPrecondition), which
// names the package to install.
func FindBinaries(hint string) (dir string, major int, err error) {
	found, err := findInstallation(hint, 0)
	return found.dir, found.major, err
}

// findInstallation is FindBinaries with a preferred major version, that of an
// existing cluster; it returns another one if that version is not installed.
func findInstallation(hint string, preferred int) (installation, error) {
	if hint != "" {
		for _, dir := range []string{hint, filepath.Join(hint, "bin")} {
			if i, ok := inspectInstallation(dir); ok {
				if i.major < MinimumMajor {
					return installation{}, fault.New(fault.FailedPrecondition, "dev.postgres_not_found",
						"The PostgreSQL in %s has major version %d, needed is %d or newer; %s.", dir, i.major, MinimumMajor, installHint).
						WithNumbers(MinimumMajor, i.major)
				}
				return i, nil
			}
		}
		return installation{}, fault.New(fault.FailedPrecondition, "dev.postgres_not_found",
			"No working initdb and postgres in %s; %s.", hint, installHint)
	}
	var best installation
	for _, i := range installations() {
		if i.major < MinimumMajor {
			continue
		}
		if i.major == preferred {
			return i, nil
		}
		if i.major > best.major {
			best = i
		}
	}
	if best.dir == "" {
		return installation{}, fault.New(fault.FailedPrecondition, "dev.postgres_not_found",
			"No PostgreSQL server %d or newer was found in PATH or %s; %s.", MinimumMajor, binaryPatterns[0], installHint)
	}
	return best, nil
}

// installations lists the installed versions, PATH first.
func installations() []installation {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(resolved))
		}
	}
	for _, pattern := range binaryPatterns {
		// The patterns are constant and well formed, so Glob cannot fail.
		matches, _ := filepath.Glob(pattern)
		dirs = append(dirs, matches...)
	}
	var out []installation
	for i, dir := range dirs {
		if slices.Contains(dirs[:i], dir) { // packages link their programs into PATH
			continue
		}
		if i, ok := inspectInstallation(dir); ok {
			out = append(out, i)
		}
	}
	return out
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspectInstallation reads the version of the programs in a folder. A folder without a server,
// as removed packages leave behind, is no installation.
func inspectInstallation(dir string) (installation, bool) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return installation{}, false
	}
	if info, err := os.Stat(filepath.Join(absolute, "initdb")); err != nil || info.IsDir() {
		return installation{}, false
	}
	out, err := exec.Command(filepath.Join(absolute, "postgres"), "--version").Output()
	if err != nil {
		return installation{}, false
	}
	match := versionLine.FindSubmatch(out)
	if match == nil {
		return installation{}, false
	}
	major, err := strconv.Atoi(string(match[1]))
	return installation{dir: absolute, major: major}, err == nil
}

// program is the path of one of the installation's programs.
func (i installation) program(name string) string { return filepath.Join(i.dir, name) }
