package main

import (
	"github.com/spf13/cobra"
)

// paging is how much of a list is wanted.
type paging struct {
	limit int
	all   bool
	token string
}

// pageFlags adds the flags of a list command.
func pageFlags(cmd *cobra.Command, p *paging, limit int) {
	cmd.Flags().IntVar(&p.limit, "limit", limit, "show at most this many")
	cmd.Flags().BoolVar(&p.all, "all", false, "show all, however many")
	cmd.Flags().StringVar(&p.token, "page-token", "", "go on where an answer with this nextPageToken ended")
}

// maxPage is the largest page the API gives.
const maxPage = 1000

// pages collects a list page by page until it ends or has what p asks for.
// next is empty if the list ended, else the token of the rest.
func pages[T any](p paging, fetch func(size int32, token string) (items []T, next string, err error)) (items []T, next string, err error) {
	if p.limit < 1 {
		return nil, "", usagef("--limit: want at least 1, got %d", p.limit)
	}
	next = p.token
	for {
		size := maxPage
		if !p.all {
			size = min(size, p.limit-len(items))
		}
		page, token, err := fetch(int32(size), next)
		if err != nil {
			return nil, "", err
		}
		items, next = append(items, page...), token
		if next == "" || (!p.all && len(items) >= p.limit) {
			return items, next, nil
		}
	}
}

// noteMore tells people that a list goes on.
func (c *cli) noteMore(shown int, next string) {
	if next != "" && c.forPeople() {
		c.note("the first %d; use --all to see all, or --limit to see more", shown)
	}
}
