// Package live drives feeds: whoever connects is brought up to date from where they
// left off, told so once, and shown what comes as it comes. The reader's speed paces
// the reading: one page is in memory, and while a feed waits it holds nothing in the
// database and asks it nothing.
package live
