"""Sparse tensors: COO and CSR, products with dense ones, back to dense."""

import warnings

import torch


def main():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compute()


def compute():
    torch.manual_seed(0)
    dense = torch.randn(3, 4).relu()
    coo = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 3]], [3.0, 4.0, 5.0], (3, 4))
    csr = dense.to_sparse_csr()
    product = torch.sparse.mm(coo, dense.T)
    total = coo.coalesce() + coo
    return product, total.to_dense(), csr.to_dense(), csr.values(), coo.coalesce().indices()
