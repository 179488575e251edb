package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Kinds of files that a folder stands for, by extension.
var (
	invoiceFiles = []string{".xml", ".pdf"}
	csvFiles     = []string{".csv"}
)

// FindFiles lists the files that the paths name, each once, in name order. A path to a
// file is listed under any name; a path to a folder stands for all files with one of the extensions
// (".xml", ".pdf" without any) in it and in its subfolders, whatever the case. Symbolic links to files are followed, those to
// folders only if the path itself is one. A file in a folder that cannot be read, such as
// a broken link, is listed too, and its import fails alone. FindFiles fails if a path does
// not exist or cannot be listed, or if it finds no file.
func FindFiles(paths []string, extensions ...string) ([]string, error) {
	if len(extensions) == 0 {
		extensions = invoiceFiles
	}
	named := "*" + strings.Join(extensions, " or *")
	var files []string
	for _, path := range paths {
		path = filepath.Clean(path)
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, unreadable(path, err)
		case info.Mode().IsRegular():
			files = append(files, path)
		case info.IsDir():
			found, err := findInFolder(path, extensions)
			if err != nil {
				return nil, err
			}
			files = append(files, found...)
		default:
			return nil, fmt.Errorf("%s is neither a file nor a folder; name %s files or folders of them", printable(path), named)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no %s file in %s; name such files or folders of them", named, printable(strings.Join(paths, ", ")))
	}
	slices.SortFunc(files, compareNames)
	return slices.Compact(files), nil
}

func findInFolder(root string, extensions []string) ([]string, error) {
	var files []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err != nil {
			return unreadable(path, err)
		}
		if d.IsDir() || !slices.Contains(extensions, strings.ToLower(filepath.Ext(name))) {
			return nil
		}
		if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() {
			files = append(files, path)
		}
		return nil
	})
	return files, err
}

func unreadable(path string, err error) error {
	return fmt.Errorf("%s cannot be read: %w; nothing was sent", printable(path), withoutPath(err))
}

// withoutPath strips operation and path from the error of a file operation.
func withoutPath(err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// compareNames orders paths by folder and name, so that a folder's files stay
// together and the order does not depend on the path's separators.
func compareNames(a, b string) int {
	separator := string(filepath.Separator)
	return slices.Compare(strings.Split(a, separator), strings.Split(b, separator))
}
