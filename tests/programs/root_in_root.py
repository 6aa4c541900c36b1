"""A model that holds another one where torch does not see it, and two roots of the same class in turn."""

import torch
from torch import nn


class Student(nn.Module):
    def __init__(self, teacher=None):
        super().__init__()
        self.body = nn.Linear(3, 3)
        self.hidden = [teacher]  # in a list: no submodule, so a root of its own

    def forward(self, x):
        y = self.body(x)
        teacher = self.hidden[0]
        return y if teacher is None else y - teacher(x).detach()


def main():
    torch.manual_seed(0)
    teacher = Student()
    student, other = Student(teacher), Student()
    x = torch.randn(2, 3)
    return student(x), other(x)
